// multipart/form-data request bodies (RFC 7578), for provider requests that carry files.
import { randomUUID } from 'node:crypto';

export type FormField = string | { fileName: string; mediaType: string; content: Uint8Array };

/** The form's body, and the header that names its boundary. */
export function multipartForm(fields: readonly (readonly [string, FormField])[]): {
  body: Uint8Array;
  headers: Readonly<Record<string, string>>;
} {
  const boundary = `townhall-${randomUUID()}`;
  const pieces = fields.flatMap(([name, field]) => {
    const head = `--${boundary}\r\ncontent-disposition: form-data; name="${escapeQuotes(name)}"`;
    if (typeof field === 'string') return [Buffer.from(`${head}\r\n\r\n${field}\r\n`, 'utf8')];
    const fileName = escapeQuotes(field.fileName);
    const fileHead = `${head}; filename="${fileName}"\r\ncontent-type: ${field.mediaType}\r\n\r\n`;
    return [Buffer.from(fileHead, 'utf8'), field.content, Buffer.from('\r\n')];
  });
  return {
    body: Buffer.concat([...pieces, Buffer.from(`--${boundary}--\r\n`)]),
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
}

/** Escapes a name as browsers do, so that it cannot end its quotes. */
function escapeQuotes(name: string): string {
  return name.replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
}
