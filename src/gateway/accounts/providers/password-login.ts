// The login with an e-mail address and a password.
import { Problem } from '../../../kernel/problem.ts';
import { normalAddress } from './email-address.ts';
import type { Mailer } from './code-mail.ts';
import type { Passwords } from './passwords.ts';
import type { InputProvider, LoginInput } from './provider.ts';

const inputs: readonly LoginInput[] = [
  { name: 'email', type: 'email', label: 'E-mail address', required: true },
  { name: 'password', type: 'password', label: 'Password', required: true },
];

/** It exists where e-mail can be sent: without it nobody could register or get a new password. */
export function passwordProvider({ passwords, mail }: { passwords: Passwords; mail: Mailer }): InputProvider {
  return {
    id: 'password',
    label: 'E-mail and password',
    kind: 'input',
    inputs,
    available: () => mail.isConfigured(),
    inputsAfter: () => inputs,
    async continue(input, _memory, { bureauId, remoteAddress }) {
      const email = normalAddress(input['email'] ?? '');
      // What is no address is nobody's either, and nobody's password can be counted or checked.
      const account =
        email === null
          ? null
          : await passwords.check({ bureauId, email, remoteAddress }, input['password'] ?? '');
      if (!account) throw wrongPassword();
      return { outcome: 'done', ...account };
    },
  };
}

/** The refusal of an e-mail address and password that do not match. */
export function wrongPassword(): Problem {
  return wrongInput('The e-mail address or the password is wrong.');
}

export function wrongInput(message: string): Problem {
  return new Problem('unauthenticated', 'invalid_credentials', message, {
    headers: { 'www-authenticate': 'Bearer' },
  });
}
