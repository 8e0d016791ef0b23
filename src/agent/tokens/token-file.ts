// The file of the agent's first token: the token and a newline, readable by its owner only.
import { randomUUID } from 'node:crypto';
import { constants } from 'node:fs';
import { chmod, link, open, readFile, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isMissing } from '../../kernel/file-errors.ts';
import { makeFolder } from '../../kernel/folder.ts';
import type { Log } from '../../kernel/log.ts';
import { parseToken } from '../../kernel/secrets/secret.ts';

/**
 * The token in the file; null without a file. Throws for any other content, since it may be another
 * program's file. A file that other users can read is set to 0600, with a warning in the log.
 */
export async function readTokenFile(path: string, log: Log): Promise<string | null> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    if (isMissing(cause)) return null;
    throw new Error(`The token file ${path} cannot be read.`, { cause });
  }
  const token = text.replace(/\r?\n$/, '');
  if (parseToken(token) !== 'agt') {
    throw new Error(
      `The token file ${path} does not contain an agent's token. Remove the file to get a new ` +
        'token, or set another file with --token-file.',
    );
  }
  const { mode } = await stat(path);
  if ((mode & 0o077) !== 0) {
    await chmod(path, 0o600).catch(() => {});
    log.warn({ path }, 'the token file was readable by others; the token may have to be replaced');
  }
  return token;
}

/** Atomic. With `replace: false` it throws EEXIST when the file exists. */
export async function writeTokenFile(
  path: string,
  token: string,
  { replace: mayReplace }: { replace: boolean },
): Promise<void> {
  await makeFolder(dirname(path));
  // Another replica may read or create the file at the same time, so it gets its name when it is complete.
  const draft = `${path}.${randomUUID()}.new`;
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW;
  const handle = await open(draft, flags, 0o600);
  try {
    try {
      await handle.writeFile(`${token}\n`);
      await handle.sync();
    } finally {
      await handle.close();
    }
    // Unlike a rename, a link never replaces an existing file.
    await (mayReplace ? rename(draft, path) : link(draft, path));
  } finally {
    await rm(draft, { force: true });
  }
}
