// The response that serves the content of an attachment. The content and its media type come from a
// caller, so a browser must neither run it nor guess another type.
import type { AttachmentRecord } from './store.ts';

/**
 * Headers of every response, 304 included. The content of an attachment never changes, so its id is its ETag.
 */
export function cacheHeaders({ attachmentId }: Pick<AttachmentRecord, 'attachmentId'>): {
  etag: string;
  'cache-control': string;
} {
  return { etag: `"${attachmentId}"`, 'cache-control': 'private, no-cache' };
}

/** Every response has `x-content-type-options: nosniff` as well. */
export function contentHeaders({ fileName }: Pick<AttachmentRecord, 'fileName'>): Record<string, string> {
  return {
    'content-disposition': dispositionOf(fileName),
    'content-security-policy': "default-src 'none'; sandbox",
  };
}

/**
 * The media type with its parameters. Text gets UTF-8 as its only parameter: it was stored so, whatever
 * charset its caller named.
 */
export function mediaTypeOf({
  contentType,
  encoding,
}: Pick<AttachmentRecord, 'contentType' | 'encoding'>): string {
  if (encoding === 'base64') return contentType.trim();
  const [mediaType = ''] = contentType.split(';');
  return `${mediaType.trim()}; charset=utf-8`;
}

/** RFC 6266: the name in ASCII for old clients, and the full name as RFC 8187 encodes it. */
function dispositionOf(fileName: string): string {
  // A browser drops the folders of a path, but another client may write to them.
  const name = fileName.toWellFormed().replaceAll(/[\p{Cc}\p{Cf}\u2028\u2029/\\]/gu, '_');
  const ascii = name.replaceAll(/[^\x20-\x7e]/g, '_').replaceAll(/["%]/g, '_');
  const encodedName = encodeURIComponent(name).replaceAll(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${ascii}"; filename*=UTF-8''${encodedName}`;
}
