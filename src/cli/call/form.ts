// The body of `townhall call` for an operation that takes a form instead of JSON. A file is typed as
// NAME=@FILE, as for `curl --form`.
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { SettingError } from '../../kernel/settings.ts';
import type { Member } from './operations.ts';

/** Members in the order of the command line, each with its text. */
export type FormField = readonly [member: Member, text: string];

export function isFormType(type: string | undefined): boolean {
  return type === 'multipart/form-data' || type === 'application/x-www-form-urlencoded';
}

/** Throws a SettingError for a member that takes a file and has another value. */
export async function createForm(type: string, fields: readonly FormField[]): Promise<FormData | string> {
  if (type !== 'multipart/form-data')
    return new URLSearchParams(fields.map(([{ name }, text]) => [name, text])).toString();
  const form = new FormData();
  for (const [{ name, isFile }, text] of fields) {
    if (!isFile) form.append(name, text);
    else if (!text.startsWith('@')) throw new SettingError(`${name} takes a file: ${name}=@FILE.`);
    else {
      const path = text.slice(1);
      form.append(name, new Blob([await readFile(path)]), basename(path));
    }
  }
  return form;
}
