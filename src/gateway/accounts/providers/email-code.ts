// The login with a code that is sent to an e-mail address. A new address makes a new account.
import { Problem } from '../../../kernel/problem.ts';
import { emailPerson, normalAddress } from './email-address.ts';
import { isCode, sendCode, type Mailer } from './code-mail.ts';
import type { Guesses } from '../attempt-limits.ts';
import { newDigitCode } from '../secret-box.ts';
import { wrongInput } from './password-login.ts';
import type { InputProvider, LoginInput } from './provider.ts';

const first: readonly LoginInput[] = [
  { name: 'email', type: 'email', label: 'E-mail address', required: true },
];
const second: readonly LoginInput[] = [
  { name: 'code', type: 'code', label: 'Code from the e-mail', required: true },
];

interface Memory {
  email: string;
  code: string;
}

export function emailCodeProvider({
  guesses,
  mail,
  minutes,
}: {
  guesses: Guesses;
  mail: Mailer;
  minutes: number;
}): InputProvider {
  return {
    id: 'email_code',
    label: 'E-mail code',
    kind: 'input',
    inputs: first,
    available: () => mail.isConfigured(),
    inputsAfter: (memory) => (memory === null ? first : second),
    async continue(input, memory, { bureauId, bureauName, remoteAddress }) {
      if (memory === null) {
        const email = normalAddress(input['email'] ?? '');
        if (email === null) throw notAnAddress();
        await guesses.count('sentCodes', { bureauId, email, remoteAddress });
        const code = newDigitCode();
        await sendCode(mail, { to: email, bureauName, code, purpose: 'log in', minutes });
        return { outcome: 'input', inputs: second, memory: JSON.stringify({ email, code } satisfies Memory) };
      }
      const { email, code } = JSON.parse(memory) as Memory;
      const at = { bureauId, email, remoteAddress };
      await guesses.count('wrongCodes', at);
      if (!isCode(input['code'] ?? '', code)) throw wrongInput('The code is wrong.');
      await guesses.succeed('wrongCodes', at);
      return { outcome: 'done', person: emailPerson(email) };
    },
  };
}

function notAnAddress(): Problem {
  const [path, message] = ['input.email', 'is not an e-mail address'];
  return new Problem('bad_request', 'invalid_request', `\`${path}\` ${message}.`, {
    param: path,
    details: [{ path, message }],
  });
}
