// E-mail accounts: register, verify, forgotten and changed passwords. The rule they keep: what they answer, and
// how soon, is the same whether or not an address has an account; only its owner learns that, by e-mail. A
// password holds only after the address was proven, so nobody can put theirs under the address of another.
import type { Background } from '../../../kernel/background.ts';
import { id } from '../../../kernel/ids.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Bureau } from '../../bureaus/index.ts';
import { originOf } from '../../identity.ts';
import type { AccountsHandlers, AuditPort, ChangesPort } from '../ports.ts';
import type { Guesses } from '../attempt-limits.ts';
import type { AttemptStore } from './store.ts';
import { wrongInput } from '../providers/password-login.ts';
import { newDigitCode } from '../secret-box.ts';
import type { AccountsQueries, AccountsStore } from '../store.ts';
import type { TicketPurpose, TicketStore } from '../one-time-tokens-store.ts';
import { issueTicket, takeTicket, tryTicket } from '../one-time-tokens.ts';
import { emailPerson, normalAddress } from '../providers/email-address.ts';
import { isCode, sendAccountExists, sendCode, type Mailer } from '../providers/code-mail.ts';
import type { Passwords } from '../providers/passwords.ts';

export interface RegistrationNeeds {
  store: AccountsStore;
  attempts: AttemptStore;
  tickets: TicketStore;
  guesses: Guesses;
  passwords: Passwords;
  mail: Mailer;
  audit: AuditPort;
  changes: ChangesPort;
  background: Background;
  /** Throws 404 `bureau_not_found`, 403 for a Bureau that takes no logins. */
  servingBureau: (bureauId: string) => Promise<Bureau>;
  ttlSeconds: number;
}

/** A code is null where there is nothing to prove: for an address with an account, or without one. */
interface Registration {
  bureauId: string;
  email: string;
  displayName: string | null;
  passwordDigest: string;
  code: string | null;
}

interface Reset {
  bureauId: string;
  email: string;
  userId: string | null;
  code: string | null;
}

const tries = 5;
const noStore = { 'cache-control': 'no-store' };

export function registration(
  needs: RegistrationNeeds,
): Pick<
  AccountsHandlers,
  | 'accounts.register'
  | 'accounts.verifyEmail'
  | 'accounts.requestPasswordReset'
  | 'accounts.resetPassword'
  | 'accounts.changePassword'
> {
  const { store, tickets, guesses, passwords, mail, ttlSeconds } = needs;
  const minutes = Math.ceil(ttlSeconds / 60);

  async function begin(body: {
    bureau_id: string;
    email: string;
  }): Promise<{ bureau: Bureau; email: string }> {
    const bureau = await needs.servingBureau(body.bureau_id);
    if (!mail.isConfigured())
      throw new Problem('not_found', 'provider_not_found', 'There are no e-mail accounts here.');
    const email = normalAddress(body.email);
    if (email === null)
      throw new Problem('bad_request', 'invalid_request', '`email` is not an e-mail address.', {
        param: 'email',
      });
    return { bureau, email };
  }

  /** The content of the ticket whose code was given, and the ticket is gone. Throws 401 for a wrong one. */
  async function prove<T extends Registration | Reset>(
    purpose: TicketPurpose,
    body: { verification_id: string; code: string },
    remoteAddress: string,
  ): Promise<T> {
    const wrong = () => wrongInput('The code is wrong, or it holds no longer.');
    const ticket = await tryTicket<T>(tickets, purpose, body.verification_id);
    if (!ticket) throw wrong();
    const { bureauId, email, code } = ticket.content;
    const at = { bureauId, email, remoteAddress };
    await guesses.count('wrongCodes', at);
    if (!isCode(body.code, code)) throw wrong();
    await guesses.succeed('wrongCodes', at);
    // Of any number that come with the right code at once, one goes on.
    if (!(await takeTicket(tickets, purpose, body.verification_id))) throw wrong();
    await needs.servingBureau(bureauId);
    return ticket.content;
  }

  /** A new password ends all tokens and keys, and logins whose token was not read yet. */
  async function endCredentials(
    queries: AccountsQueries,
    tx: Tx,
    choice: { userId: string; except?: string },
  ): Promise<void> {
    await queries.revokeTokens(choice);
    await needs.attempts.within(tx).forgetUser(choice.userId);
  }

  return {
    'accounts.register': async ({ body, remoteAddress }) => {
      const { bureau, email } = await begin(body);
      passwords.requireFit(body.password, 'password', email);
      await guesses.count('sentCodes', { bureauId: bureau.bureauId, email, remoteAddress });
      const passwordDigest = await passwords.digest(body.password);
      const account = await store.findEmailAccount(bureau.bureauId, email);
      // Whoever logged in with e-mail codes until now has an account without a password and may set one.
      const code =
        account && (account.passwordDigest !== null || account.state !== 'active') ? null : newDigitCode();
      const content: Registration = {
        bureauId: bureau.bureauId,
        email,
        displayName: body.display_name ?? null,
        passwordDigest,
        code,
      };
      const ticket = await issueTicket(tickets, { purpose: 'registration', content, ttlSeconds, tries });
      if (code === null) await sendAccountExists(mail, { to: email, bureauName: bureau.name });
      else
        await sendCode(mail, {
          to: email,
          bureauName: bureau.name,
          code,
          purpose: 'finish your registration',
          minutes,
        });
      return {
        status: 202,
        headers: noStore,
        body: { verification_id: ticket.secret, expires_at: ticket.expiresAt.toISOString() },
      };
    },

    'accounts.verifyEmail': async ({ body, remoteAddress }) => {
      const { bureauId, email, displayName, passwordDigest } = await prove<Registration>(
        'registration',
        body,
        remoteAddress,
      );
      const isBlocked = await store.tx(async (queries, tx) => {
        const { userId, state } = await store.ensureUser(
          tx,
          bureauId,
          emailPerson(email, displayName),
          id('usr'),
        );
        if (state === 'active') await queries.setPassword(userId, passwordDigest);
        return state !== 'active';
      });
      if (isBlocked) throw blocked();
      return { status: 200, body: { verified: true } };
    },

    'accounts.requestPasswordReset': async ({ body, remoteAddress }) => {
      const { bureau, email } = await begin(body);
      await guesses.count('sentCodes', { bureauId: bureau.bureauId, email, remoteAddress });
      const account = await store.findEmailAccount(bureau.bureauId, email);
      const isThere = account?.state === 'active';
      const content: Reset = {
        bureauId: bureau.bureauId,
        email,
        userId: isThere ? account.userId : null,
        code: isThere ? newDigitCode() : null,
      };
      const ticket = await issueTicket(tickets, { purpose: 'password_reset', content, ttlSeconds, tries });
      const { code } = content;
      // Not waited for: how long a mail takes would say that there was somebody to send it to.
      if (code !== null)
        needs.background.run(ticket.secret, () =>
          sendCode(mail, {
            to: email,
            bureauName: bureau.name,
            code,
            purpose: 'set a new password',
            minutes,
          }),
        );
      return {
        status: 202,
        headers: noStore,
        body: { verification_id: ticket.secret, expires_at: ticket.expiresAt.toISOString() },
      };
    },

    'accounts.resetPassword': async (call) => {
      const { body } = call;
      passwords.requireFit(body.password, 'password', null);
      const { userId } = await prove<Reset>('password_reset', body, call.remoteAddress);
      if (userId === null) throw new Error('A code fitted where there was none.');
      const passwordDigest = await passwords.digest(body.password);
      const isBlocked = await store.tx(async (queries, tx) => {
        const user = await queries.lockUser(userId);
        if (user?.state !== 'active') return true;
        await queries.setPassword(userId, passwordDigest);
        await endCredentials(queries, tx, { userId });
        await needs.audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'user', id: userId },
          outcome: 'ok',
        });
        await needs.changes.bump(tx);
        return false;
      });
      if (isBlocked) throw blocked();
      return { status: 200, body: { changed: true } };
    },

    'accounts.changePassword': async (call) => {
      const { userId, bureauId, tokenId } = call.identity;
      const [user, token] = await Promise.all([store.findUser(userId), store.findToken(tokenId)]);
      if (token?.kind === 'key')
        throw new Problem('forbidden', 'forbidden_for_identity', 'An API key cannot change the password.');
      const hasPassword = (await store.findPasswordDigest(userId)) !== null;
      if (!user?.email || !hasPassword) {
        throw new Problem(
          'conflict',
          'conflict',
          'There is no password to change; `/v1/accounts/password/forgot` sets one for an e-mail account.',
        );
      }
      passwords.requireFit(call.body.new_password, 'new_password', user.email);
      const account = await passwords.check(
        { bureauId, email: user.email, remoteAddress: call.remoteAddress },
        call.body.current_password,
      );
      if (account?.userId !== userId) throw wrongInput('The current password is wrong.');
      const passwordDigest = await passwords.digest(call.body.new_password);
      await store.tx(async (queries, tx) => {
        // A login takes the same lock, so that none with the former password ends after this.
        await queries.lockUser(userId);
        if ((await queries.findPasswordDigest(userId)) !== account.passwordDigest)
          throw wrongInput('The current password is wrong.');
        await queries.setPassword(userId, passwordDigest);
        await endCredentials(queries, tx, { userId, except: tokenId });
        await needs.audit.record(tx, {
          ...originOf(call),
          action: call.operationId,
          target: { kind: 'user', id: userId },
          outcome: 'ok',
        });
        await needs.changes.bump(tx);
      });
      return { status: 200, body: { changed: true } };
    },
  };
}

function blocked(): Problem {
  return new Problem('forbidden', 'user_blocked', 'This user is blocked.');
}
