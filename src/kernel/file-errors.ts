// Codes of file system errors, and reading a file that may be missing.
import { readFile } from 'node:fs/promises';

/** The code of a system error, such as ENOENT. */
export function errorCode(error: unknown): string | undefined {
  return (error as NodeJS.ErrnoException | undefined)?.code;
}

/** Whether the error means that a file or a folder of its path does not exist. */
export function isMissing(error: unknown): boolean {
  return errorCode(error) === 'ENOENT';
}

/** The content of a file; null where it does not exist. */
export async function readIfExists(path: string): Promise<Buffer | null> {
  return readFile(path).catch((error: unknown) => {
    if (isMissing(error)) return null;
    throw error;
  });
}

/** The text of a UTF-8 file; null where it does not exist. */
export async function readTextIfExists(path: string): Promise<string | null> {
  return (await readIfExists(path))?.toString('utf8') ?? null;
}
