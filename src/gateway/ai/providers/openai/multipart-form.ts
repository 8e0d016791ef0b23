// A form as browsers send it, for the providers' requests that carry files.
import { randomUUID } from 'node:crypto';

export type FormField = string | { fileName: string; mediaType: string; content: Uint8Array };

/** The form's body, and the header that tells how it is divided. */
export function multipartForm(fields: readonly (readonly [string, FormField])[]): {
  body: Uint8Array;
  headers: Readonly<Record<string, string>>;
} {
  const boundary = `townhall-${randomUUID()}`;
  const pieces = fields.flatMap(([name, value]) => {
    const head = `--${boundary}\r\ncontent-disposition: form-data; name="${escapeQuotes(name)}"`;
    if (typeof value === 'string') return [Buffer.from(`${head}\r\n\r\n${value}\r\n`, 'utf8')];
    return [
      Buffer.from(
        `${head}; filename="${escapeQuotes(value.fileName)}"\r\ncontent-type: ${value.mediaType}\r\n\r\n`,
        'utf8',
      ),
      value.content,
      Buffer.from('\r\n'),
    ];
  });
  return {
    body: Buffer.concat([...pieces, Buffer.from(`--${boundary}--\r\n`)]),
    headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
  };
}

// What browsers do with a name, so that none can break out of its quotes.
function escapeQuotes(name: string): string {
  return name.replaceAll('"', '%22').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
}
