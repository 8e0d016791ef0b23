// The contract in its published form: serialized once, with an ETag, and with this
// server's address instead of the example address.
import { createHash } from 'node:crypto';
import { includesTag } from '../etag.ts';

/** The value of the Link header to the document (RFC 8631). */
export const serviceDescription = '</openapi.json>; rel="service-desc"; type="application/json"';

interface DocumentHeaders extends Record<string, string> {
  etag: string;
  'cache-control': string;
}

export type DocumentReply =
  | { status: 200; content: Uint8Array; mediaType: 'application/json'; headers: DocumentHeaders }
  | { status: 304; headers: DocumentHeaders };

/** Responds with 304 when the caller already has this document (`If-None-Match`). */
export function publishDocument(definition: object): (ifNoneMatch: string | undefined) => DocumentReply {
  let answer: Extract<DocumentReply, { status: 200 }> | undefined;
  return (ifNoneMatch) => {
    // The document is serialized at the first request, since most servers never get one.
    answer ??= serialize(definition);
    const { headers } = answer;
    return ifNoneMatch !== undefined && includesTag(ifNoneMatch, headers.etag)
      ? { status: 304, headers }
      : answer;
  };
}

function serialize(definition: object): Extract<DocumentReply, { status: 200 }> {
  const servers = [{ url: '/', description: 'The server that answered with this document.' }];
  const content = Buffer.from(`${JSON.stringify({ ...definition, servers })}\n`);
  const etag = `"${createHash('sha256').update(content).digest('base64url').slice(0, 22)}"`;
  const headers = { etag, 'cache-control': 'public, max-age=60' };
  return { status: 200, content, mediaType: 'application/json', headers };
}
