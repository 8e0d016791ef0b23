// How a command asks for a password: from a pipe when told so, else on the terminal without showing it.
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { SettingError } from '../../kernel/settings.ts';

/** Reads standard input to its end; one newline at the end is not part of the password. */
export async function passwordFromPipe(): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of process.stdin) pieces.push(Buffer.from(piece as Uint8Array));
  return Buffer.concat(pieces)
    .toString('utf8')
    .replace(/\r?\n$/, '');
}

/** Asks twice on the terminal. Throws when there is no terminal or the two differ. */
export async function passwordFromTerminal(): Promise<string> {
  if (!process.stdin.isTTY)
    throw new SettingError('There is no terminal to ask for the password; use --password-stdin.');
  const first = await ask('Password: ');
  const second = await ask('Again: ');
  if (first !== second) throw new Error('The two passwords differ; nothing was changed.');
  return first;
}

/** Asks for one line that is shown while it is typed. */
export async function lineFromTerminal(question: string): Promise<string> {
  if (!process.stdin.isTTY)
    throw new SettingError(`There is no terminal to ask "${question.trim()}"; give it as an option.`);
  const reader = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return await new Promise<string>((resolve, reject) => {
      reader.on('SIGINT', () => reject(new Error('Cancelled; nothing was changed.')));
      reader.question(question, resolve);
    });
  } finally {
    reader.close();
  }
}

async function ask(question: string): Promise<string> {
  process.stdout.write(question);
  // readline echoes what is typed to its output; this one swallows it.
  const nowhere = new Writable({ write: (_piece, _encoding, done) => done() });
  const reader = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  try {
    return await new Promise<string>((resolve, reject) => {
      reader.on('SIGINT', () => reject(new Error('Cancelled; nothing was changed.')));
      reader.question('', resolve);
    });
  } finally {
    reader.close();
    process.stdout.write('\n');
  }
}
