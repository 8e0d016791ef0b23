// The login with a code that is sent to an e-mail address. It creates an account for a new address.
import { invalidMember } from '../../../kernel/problem.ts';
import type { AttemptLimits } from '../core/attempt-limits.ts';
import { matchesCode, newEmailCode, sendCode, type Mailer } from './code-mail.ts';
import { emailPerson, normalizeAddress } from './email-address.ts';
import { wrongInput } from './password-login.ts';
import type { InputProvider, InputStep, LoginContext, LoginInput } from './provider.ts';

const addressInputs: readonly LoginInput[] = [
  { name: 'email', type: 'email', label: 'E-mail address', required: true },
];
const codeInputs: readonly LoginInput[] = [
  { name: 'code', type: 'code', label: 'Code from the e-mail', required: true },
];

/**
 * The state between the two inputs. The login attempt stores it encrypted with its `login_id`; the code ends
 * with the attempt, which expires `minutes` after its start.
 */
interface SentCode {
  email: string;
  code: string;
}

export function emailCodeProvider({
  attemptLimits,
  mail,
  minutes,
}: {
  attemptLimits: Pick<AttemptLimits, 'count' | 'recordSuccess'>;
  mail: Mailer;
  minutes: number;
}): InputProvider {
  async function send(
    address: string,
    { bureauId, bureauName, remoteAddress }: LoginContext,
  ): Promise<InputStep> {
    const email = normalizeAddress(address);
    if (email === null) throw invalidMember('input.email', 'is not an e-mail address');
    await attemptLimits.count('sentCodes', { bureauId, email, remoteAddress });
    const code = newEmailCode();
    await sendCode(mail, { to: email, bureauName, code, purpose: 'log in', minutes });
    const state: SentCode = { email, code };
    return { outcome: 'input', inputs: codeInputs, state: JSON.stringify(state) };
  }

  async function check(
    input: string,
    { email, code }: SentCode,
    { bureauId, remoteAddress }: LoginContext,
  ): Promise<InputStep> {
    const source = { bureauId, email, remoteAddress };
    await attemptLimits.count('wrongCodes', source);
    if (!matchesCode(input, code)) throw wrongInput('The code is wrong.');
    await attemptLimits.recordSuccess('wrongCodes', source);
    return { outcome: 'done', person: emailPerson(email) };
  }

  return {
    id: 'email_code',
    label: 'E-mail code',
    kind: 'input',
    inputs: addressInputs,
    available: () => mail.isConfigured(),
    inputsAfter: (state) => (state === null ? addressInputs : codeInputs),
    continue: (input, state, context) =>
      state === null
        ? send(input['email'] ?? '', context)
        : check(input['code'] ?? '', JSON.parse(state) as SentCode, context),
  };
}
