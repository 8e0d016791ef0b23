// The e-mails that carry a code, and the comparison of a typed code with the code that was sent.
import { randomInt } from 'node:crypto';
import { secretsEqual } from '../../../kernel/secrets/secret.ts';
import type { Mail } from '../../mail.ts';

export type Mailer = Pick<Mail, 'isConfigured' | 'send'>;

export interface CodeMail {
  to: string;
  bureauName: string;
  code: string;
  /** Completes the sentence "Use this code to …". */
  purpose: string;
  minutes: number;
}

/** Eight random digits. */
export function newEmailCode(): string {
  return String(randomInt(100_000_000)).padStart(8, '0');
}

export async function sendCode(
  mail: Mailer,
  { to, bureauName, code, purpose, minutes }: CodeMail,
): Promise<void> {
  const spacedCode = `${code.slice(0, 4)} ${code.slice(4)}`;
  const text = [
    `Use this code to ${purpose} at ${bureauName}:`,
    `    ${spacedCode}`,
    `It is valid for ${minutes} minutes. If you did not request it, ignore this e-mail. Do not share the code with anyone.`,
  ].join('\n\n');
  await mail.send({ to, subject: `${spacedCode} is your code for ${bureauName}`, text });
}

/**
 * Sends the e-mail for a registration of an address that already has an account. The API answer
 * does not reveal the account.
 */
export async function sendAccountExists(
  mail: Mailer,
  { to, bureauName }: { to: string; bureauName: string },
): Promise<void> {
  const text = [
    `Someone tried to register at ${bureauName} with this e-mail address, which already has an account.`,
    'If it was you, log in or ask for a new password. Otherwise ignore this e-mail.',
  ].join('\n\n');
  await mail.send({ to, subject: `Your account at ${bureauName}`, text });
}

/**
 * Compares a typed code, without its spaces and hyphens, with the code that was sent. Null matches nothing.
 */
export function matchesCode(input: string, code: string | null): boolean {
  const digits = input.replace(/[\s-]/g, '');
  // Compare even if there is no code: the response time must not reveal that none was sent.
  return secretsEqual(digits, code ?? 'no code fits') && code !== null;
}
