// Multipart forms with files. The platform's parser reads them; this file adds a
// limit on the number of parts, since each part costs more memory than its bytes.
import { Problem } from '../../problem.ts';

/** A file of a multipart form, as handlers receive it. */
export interface UploadedFile {
  fileName: string;
  mediaType: string;
  content: Uint8Array;
}

const maximumParts = 64;
const maximumFieldBytes = 64 * 1024;

// Printable ASCII without the quote and the backslash, so that the name means the same inside quotes.
const boundaryPattern = /;\s*boundary=(?:"([ !#-[\]-~]{1,70})"|([!#-:<-[\]-~]{1,70}))/i;

type FormMember = string | UploadedFile;
export type FormMembers = Record<string, FormMember | FormMember[]>;

/**
 * The members of the form. A name that ends in `[]` is a list, however often it
 * occurs. Throws a 400 for an invalid form, and for any other repeated member.
 */
export async function parseMultipart(raw: Uint8Array, contentType: string): Promise<FormMembers> {
  const boundary = boundaryPattern.exec(contentType);
  const delimiterName = boundary?.[1] ?? boundary?.[2];
  if (delimiterName === undefined) throw invalidProblem('The Content-Type of the form must name a boundary.');
  refuseManyParts(Buffer.from(raw.buffer, raw.byteOffset, raw.byteLength), `--${delimiterName}`);
  let form: FormData;
  try {
    // Pass only the boundary that the parts were counted by: the platform may read another one from the whole
    // header, such as one after a parameter whose quoted value contains a boundary.
    form = await new Response(raw as Uint8Array<ArrayBuffer>, {
      headers: { 'content-type': `multipart/form-data; boundary="${delimiterName}"` },
    }).formData();
  } catch (cause) {
    throw invalidProblem('The body is not a valid form.', cause);
  }
  // Without a prototype, so that a member named `__proto__` is an ordinary undeclared name.
  const members = Object.create(null) as FormMembers;
  for (const [name, value] of form) {
    const member = await readMember(name, value);
    const previous = members[name];
    if (name.endsWith('[]')) {
      if (Array.isArray(previous)) previous.push(member);
      else members[name] = [member];
    } else if (previous === undefined) {
      members[name] = member;
    } else {
      throw new Problem('bad_request', 'duplicate_member', `The member \`${name}\` appears more than once.`, {
        param: name,
      });
    }
  }
  return members;
}

async function readMember(name: string, value: string | File): Promise<FormMember> {
  if (typeof value !== 'string')
    return {
      fileName: value.name,
      mediaType: value.type.split(';', 1)[0]?.trim().toLowerCase() ?? '',
      content: new Uint8Array(await value.arrayBuffer()),
    };
  if (Buffer.byteLength(value) <= maximumFieldBytes) return value;
  throw new Problem(
    'too_large',
    'request_too_large',
    `The member \`${name}\` may have at most ${maximumFieldBytes} bytes.`,
    { param: name },
  );
}

function refuseManyParts(raw: Buffer, delimiter: string): void {
  // The delimiter stands before each part and once at the end.
  let parts = -1;
  let offset = raw.indexOf(delimiter);
  while (offset >= 0) {
    parts += 1;
    if (parts > maximumParts) throw invalidProblem(`A form may have ${maximumParts} parts at most.`);
    offset = raw.indexOf(delimiter, offset + delimiter.length);
  }
}

function invalidProblem(message: string, cause?: unknown): Problem {
  return new Problem('bad_request', 'invalid_request', message, { cause });
}
