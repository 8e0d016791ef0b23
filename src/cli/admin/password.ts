// Reads a password from standard input with --password-stdin, else from the terminal without echo.
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { SettingError } from '../../kernel/settings.ts';

/** Reads standard input until it ends. A trailing newline is not part of the password. */
export async function readPasswordFromPipe(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk as Uint8Array));
  return Buffer.concat(chunks)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

/** Asks twice. Throws without a terminal, and when the two passwords differ. */
export async function askForNewPassword(): Promise<string> {
  const password = await askForPassword();
  const repetition = await askHidden('Again: ');
  if (password !== repetition) throw new Error('The two passwords differ; nothing was changed.');
  return password;
}

/** Throws without a terminal. */
export async function askForPassword(): Promise<string> {
  if (!process.stdin.isTTY)
    throw new SettingError('There is no terminal to ask for the password; use --password-stdin.');
  return askHidden('Password: ');
}

/** Asks for one line, shown while it is typed. */
export async function readLineFromTerminal(question: string): Promise<string> {
  if (!process.stdin.isTTY)
    throw new SettingError(`There is no terminal to ask "${question.trim()}"; set it as an option.`);
  return readLine(createInterface({ input: process.stdin, output: process.stdout }), question);
}

async function askHidden(question: string): Promise<string> {
  process.stdout.write(question);
  // readline echoes each key to its output stream. A stream that discards everything hides the password.
  const emptyOutput = new Writable({ write: (_chunk, _encoding, done) => done() });
  try {
    return await readLine(createInterface({ input: process.stdin, output: emptyOutput, terminal: true }), '');
  } finally {
    process.stdout.write('\n');
  }
}

async function readLine(reader: ReturnType<typeof createInterface>, question: string): Promise<string> {
  try {
    return await new Promise<string>((resolve, reject) => {
      const cancel = (): void => reject(new Error('Cancelled; nothing was changed.'));
      reader.on('SIGINT', cancel);
      // Ctrl-D, or a terminal that is closed.
      reader.on('close', cancel);
      reader.question(question, resolve);
    });
  } finally {
    reader.close();
  }
}
