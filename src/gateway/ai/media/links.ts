// Links to what is kept: anyone who holds one may follow it for a while, and nobody can make one up.
import { createHmac, timingSafeEqual } from 'node:crypto';

export interface MediaLinksOptions {
  /** The first signs; the others are still believed, so that a change of keys breaks no link. */
  keys: readonly Buffer[];
  /** The address under which users reach this server, without a slash at its end. */
  baseUrl: () => string;
  /** How long a link is good. */
  linkSeconds: number;
}

export interface MediaLinks {
  urlFor(mediaId: string, now: Date): string;
  /** Whether this server signed it; whether it is over is the store's to say, by the database's clock. */
  verify(mediaId: string, expires: number, signature: string): boolean;
}

export function createMediaLinks({ keys, baseUrl, linkSeconds }: MediaLinksOptions): MediaLinks {
  const [signing] = keys;
  if (signing === undefined) throw new Error('Links need a key.');
  return {
    urlFor(mediaId, now) {
      const expires = Math.floor(now.getTime() / 1000) + linkSeconds;
      return `${baseUrl()}/v1/ai/media/${mediaId}?expires=${expires}&signature=${sign(signing, mediaId, expires).toString('base64url')}`;
    },
    verify(mediaId, expires, signature) {
      const given = Buffer.from(signature, 'base64url');
      return keys.some((key) => {
        const right = sign(key, mediaId, expires);
        return given.length === right.length && timingSafeEqual(given, right);
      });
    },
  };
}

function sign(key: Buffer, mediaId: string, expires: number): Buffer {
  return createHmac('sha256', key).update(`${mediaId}\n${expires}`, 'utf8').digest();
}
