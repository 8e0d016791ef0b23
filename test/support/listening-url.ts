// The address of a server process, from the `listening` line of its log.
import type { ChildProcess } from 'node:child_process';
import { createInterface } from 'node:readline';

/** Waits for the line and drains the output after it. Throws when the process exits first. */
export async function readListeningUrl({ stdout }: ChildProcess): Promise<string> {
  if (stdout === null) throw new Error('The server has no output to read.');
  const lines: string[] = [];
  for await (const line of createInterface({ input: stdout })) {
    lines.push(line);
    const { msg, url } = JSON.parse(line) as { msg?: string; url?: string };
    if (msg !== 'listening' || url === undefined) continue;
    stdout.resume();
    return url;
  }
  throw new Error(`The server exited before it listened:\n${lines.join('\n')}`);
}
