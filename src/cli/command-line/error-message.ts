// Error messages for the terminal. Node's messages for errors of the operating system name only the
// system call and a code; here they get advice.

const advice: Readonly<Record<string, string>> = {
  EACCES: 'this user may not use it; run the command as the user that owns it, or give another path.',
  EPERM: 'this user may not use it; run the command as the user that owns it, or set another path.',
  EROFS: 'the file system is read-only; set another path.',
  ENOENT: 'it does not exist.',
  ENOTDIR: 'a part of this path is not a folder.',
  EEXIST: 'it exists already; choose a new file.',
  EISDIR: 'it is a folder.',
  ENOSPC: 'the disk is full.',
};

/** The message of an error. A system error about a file or socket becomes its path and the advice. */
export function errorMessage(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code = '', path, address } = error as NodeJS.ErrnoException & { address?: string };
  const place = path ?? address;
  const sentence = advice[code];
  return sentence === undefined || place === undefined ? error.message : `${place}: ${sentence}`;
}
