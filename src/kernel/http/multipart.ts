// Forms with files. The platform's own parser reads them; what is added here is the bound on their number, since each
// part costs more memory than it has bytes.
import { Problem } from '../problem.ts';

/** A file of a form, as handlers get it. */
export interface UploadedFile {
  fileName: string;
  mediaType: string;
  content: Uint8Array;
}

const maximumParts = 64;
const maximumFieldBytes = 64 * 1024;

/** The members of the form. Throws a 400 for what is no form, and for a member that comes twice. */
export async function parseMultipart(
  raw: Uint8Array,
  contentType: string,
): Promise<Record<string, string | UploadedFile>> {
  const boundary = /;\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(contentType);
  const delimiterName = boundary?.[1] ?? boundary?.[2];
  if (delimiterName === undefined) throw invalid('The form names no boundary.');
  refuseManyParts(Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength), `--${delimiterName}`);
  let form: FormData;
  try {
    form = await new Response(raw as Uint8Array<ArrayBuffer>, {
      headers: { 'content-type': contentType },
    }).formData();
  } catch (cause) {
    throw invalid('The body is not a valid form.', cause);
  }
  // Without a prototype, so that a member called `__proto__` is one more undeclared name.
  const members = Object.create(null) as Record<string, string | UploadedFile>;
  for (const [name, value] of form) {
    if (name in members) {
      throw new Problem('bad_request', 'duplicate_member', `The member \`${name}\` appears more than once.`, {
        param: name,
      });
    }
    if (typeof value === 'string') {
      if (Buffer.byteLength(value) > maximumFieldBytes)
        throw new Problem(
          'too_large',
          'request_too_large',
          `The member \`${name}\` may have ${maximumFieldBytes} bytes at most.`,
          { param: name },
        );
      members[name] = value;
    } else {
      members[name] = {
        fileName: value.name,
        mediaType: value.type.split(';', 1)[0]?.trim().toLowerCase() ?? '',
        content: new Uint8Array(await value.arrayBuffer()),
      };
    }
  }
  return members;
}

function refuseManyParts(raw: Buffer, delimiter: string): void {
  let parts = 0;
  for (let at = raw.indexOf(delimiter); at >= 0; at = raw.indexOf(delimiter, at + delimiter.length)) {
    parts += 1;
    if (parts > maximumParts) throw invalid(`A form may have ${maximumParts} parts at most.`);
  }
}

function invalid(message: string, cause?: unknown): Problem {
  return new Problem('bad_request', 'invalid_request', message, { cause });
}
