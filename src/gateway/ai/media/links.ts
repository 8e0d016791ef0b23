// Signed links to media files: a link works until it expires and cannot be forged.
import { createHmac, timingSafeEqual } from 'node:crypto';
import { unixSeconds } from '../../../kernel/clock.ts';

export interface MediaLinks {
  urlFor(mediaId: string, now: Date): string;
  /** Checks the signature only. The store checks the expiry, by the clock of the database. */
  verify(mediaId: string, expires: number, signature: string): boolean;
}

export function createMediaLinks({
  keys,
  baseUrl,
  linkSeconds,
}: {
  /**
   * New links are signed with the first key. Signatures of the other keys stay valid, so that a key rotation
   * breaks no link.
   */
  keys: readonly Buffer[];
  /** The address under which users reach this server, without a trailing slash. */
  baseUrl: () => string;
  /** The lifetime of a link. */
  linkSeconds: number;
}): MediaLinks {
  const [signingKey] = keys;
  if (signingKey === undefined) throw new Error('createMediaLinks needs at least one key.');
  return {
    urlFor(mediaId, now) {
      const expirySeconds = unixSeconds(now) + linkSeconds;
      const signature = sign(signingKey, mediaId, expirySeconds).toString('base64url');
      return `${baseUrl()}/v1/ai/media/${mediaId}?expires=${expirySeconds}&signature=${signature}`;
    },
    verify(mediaId, expires, signature) {
      const bytes = Buffer.from(signature, 'base64url');
      return keys.some((key) => {
        const expected = sign(key, mediaId, expires);
        return bytes.length === expected.length && timingSafeEqual(bytes, expected);
      });
    },
  };
}

function sign(key: Buffer, mediaId: string, expirySeconds: number): Buffer {
  return createHmac('sha256', key).update(`${mediaId}\n${expirySeconds}`, 'utf8').digest();
}
