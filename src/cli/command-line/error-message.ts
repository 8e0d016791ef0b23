// What the operating system refused, in words: its own name a call and a code, which say little to whoever typed a command.

const words: Readonly<Record<string, string>> = {
  EACCES: 'this user may not use it; run the command as the user whom it belongs to, or name another place.',
  EPERM: 'this user may not use it; run the command as the user whom it belongs to, or name another place.',
  EROFS: 'it lies where nothing can be written; name another place.',
  ENOENT: 'it is not there.',
  ENOTDIR: 'a part of this path is no folder.',
  EEXIST: 'it is there already; name a new file.',
  EISDIR: 'it is a folder.',
  ENOSPC: 'the disk is full.',
};

/** The message of an error; of one about a file or a socket file, which one and what to do. */
export function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code = '', path, address } = error as NodeJS.ErrnoException & { address?: string };
  const place = path ?? address;
  const said = words[code];
  return said === undefined || place === undefined ? error.message : `${place}: ${said}`;
}
