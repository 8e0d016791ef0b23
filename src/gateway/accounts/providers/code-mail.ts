// The e-mails that carry a code, and the check of what a person copied out of one.
import { secretsEqual } from '../../../kernel/secrets/secret.ts';
import type { Mail } from '../../mail.ts';

/** What the accounts need of e-mail. */
export type Mailer = Pick<Mail, 'isConfigured' | 'send'>;

export interface CodeMail {
  to: string;
  bureauName: string;
  code: string;
  /** What the code is for, as the end of "Use this code to …". */
  purpose: string;
  minutes: number;
}

export async function sendCode(
  mail: Mailer,
  { to, bureauName, code, purpose, minutes }: CodeMail,
): Promise<void> {
  const shown = `${code.slice(0, 4)} ${code.slice(4)}`;
  const text = [
    `Use this code to ${purpose} at ${bureauName}:`,
    `    ${shown}`,
    `It holds for ${minutes} minutes. If you did not ask for it, you need not do anything; give it to nobody.`,
  ].join('\n\n');
  await mail.send({ to, subject: `${shown} is your code for ${bureauName}`, text });
}

/** For somebody who registers an address that has an account: only its owner learns that. */
export async function sendAccountExists(
  mail: Mailer,
  { to, bureauName }: { to: string; bureauName: string },
): Promise<void> {
  const text = [
    `Somebody, perhaps you, has tried to register at ${bureauName} with this e-mail address, which has an account already.`,
    'If it was you, log in, or ask for a new password. If not, you need not do anything.',
  ].join('\n\n');
  await mail.send({ to, subject: `Your account at ${bureauName}`, text });
}

/** Whether it is the code; spaces and hyphens do not matter. A code that is null fits nothing. */
export function isCode(given: string, code: string | null): boolean {
  const typed = given.replace(/[\s-]/g, '');
  // Compared in any case, so that the time says nothing.
  return secretsEqual(typed, code ?? 'no code fits') && code !== null;
}
