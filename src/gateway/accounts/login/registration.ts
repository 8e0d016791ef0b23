// The registration of e-mail accounts. A password becomes valid only after the person who chose it has
// verified the address, so no one can set a password for another person's address.
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { AccountsHandlers } from '../core/ports.ts';
import { newEmailCode, sendAccountExists, type Mailer } from '../providers/code-mail.ts';
import { emailPerson } from '../providers/email-address.ts';
import type { Passwords } from '../providers/passwords.ts';
import type { AccountsStore, EmailAccount } from '../core/store.ts';
import type { EmailVerification, PendingVerification } from './email-verification.ts';

interface Registration extends PendingVerification {
  displayName: string | null;
  passwordDigest: string;
}

export function registration({
  store,
  passwords,
  verification,
  mail,
}: {
  store: AccountsStore;
  passwords: Passwords;
  verification: EmailVerification;
  mail: Mailer;
}): Pick<AccountsHandlers, 'accounts.register' | 'accounts.verifyEmail'> {
  return {
    'accounts.register': async ({ body, remoteAddress }) => {
      const { bureau, email } = await verification.requireAddress(body);
      passwords.requireAcceptable(body.password, 'password', email);
      await verification.countCode(bureau, email, remoteAddress);
      const passwordDigest = await passwords.digest(body.password);
      const account = await store.findEmailAccount(bureau.bureauId, email);
      const code = canSetPassword(account) ? newEmailCode() : null;
      const content: Registration = {
        bureauId: bureau.bureauId,
        email,
        displayName: body.display_name ?? null,
        passwordDigest,
        code,
      };
      const answer = await verification.start('registration', content);
      if (code === null) await sendAccountExists(mail, { to: email, bureauName: bureau.name });
      else await verification.sendCode(bureau, { to: email, code, purpose: 'finish your registration' });
      return answer;
    },

    'accounts.verifyEmail': async ({ body, remoteAddress }) => {
      const { bureauId, email, displayName, passwordDigest } = await verification.prove<Registration>(
        'registration',
        body,
        remoteAddress,
      );
      const isBlocked = await store.tx(async (queries, tx) => {
        const person = emailPerson(email, displayName);
        const { userId, state } = await store.ensureUser(tx, bureauId, person, id('usr'));
        if (state === 'active') await queries.setPassword(userId, passwordDigest);
        return state !== 'active';
      });
      if (isBlocked) throw userBlocked();
      return { status: 200, body: { verified: true } };
    },
  };
}

/** A user who logs in with e-mail codes has an account without a password, and may register to set one. */
function canSetPassword(account: EmailAccount | null): boolean {
  return account === null || (account.passwordDigest === null && account.state === 'active');
}

export function userBlocked(): Problem {
  return new Problem('forbidden', 'user_blocked', 'This user is blocked.');
}
