// The login with an e-mail address and a password.
import { Problem } from '../../../kernel/problem.ts';
import type { Mailer } from './code-mail.ts';
import { normalizeAddress } from './email-address.ts';
import type { Passwords } from './passwords.ts';
import type { InputProvider, LoginInput } from './provider.ts';

const inputs: readonly LoginInput[] = [
  { name: 'email', type: 'email', label: 'E-mail address', required: true },
  { name: 'password', type: 'password', label: 'Password', required: true },
];

/** Available only when e-mail is configured: registration and password resets depend on it. */
export function passwordProvider({
  passwords,
  mail,
}: {
  passwords: Pick<Passwords, 'check'>;
  mail: Mailer;
}): InputProvider {
  return {
    id: 'password',
    label: 'E-mail and password',
    kind: 'input',
    inputs,
    available: () => mail.isConfigured(),
    inputsAfter: () => inputs,
    async continue(input, _state, { bureauId, remoteAddress }) {
      const email = normalizeAddress(input['email'] ?? '');
      // A malformed address has no account, so no attempt is counted and no digest is checked.
      const account =
        email === null
          ? null
          : await passwords.check({ bureauId, email, remoteAddress }, input['password'] ?? '');
      if (!account) throw wrongPassword();
      return { outcome: 'done', ...account };
    },
  };
}

export function wrongPassword(): Problem {
  return wrongInput('The e-mail address or the password is wrong.');
}

/** 401 `invalid_credentials` with the challenge header that RFC 9110 requires. */
export function wrongInput(message: string): Problem {
  return new Problem('unauthenticated', 'invalid_credentials', message, {
    headers: { 'www-authenticate': 'Bearer' },
  });
}
