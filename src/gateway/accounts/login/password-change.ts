// Resets of forgotten passwords, and password changes. Both revoke the user's other tokens, API keys
// and pending logins.
import type { Background } from '../../../kernel/background.ts';
import type { Tx } from '../../../kernel/data/database.ts';
import { Problem } from '../../../kernel/problem.ts';
import { originOf } from '../../identity.ts';
import type { AttemptLimits } from '../core/attempt-limits.ts';
import type { AccountsHandlers, AuditPort, ChangesPort } from '../core/ports.ts';
import { newEmailCode } from '../providers/code-mail.ts';
import { wrongInput } from '../providers/password-login.ts';
import type { Passwords } from '../providers/passwords.ts';
import type { AccountsQueries, AccountsStore } from '../core/store.ts';
import type { EmailVerification, PendingVerification } from './email-verification.ts';
import { userBlocked } from './registration.ts';
import type { LoginAttemptStore } from './store.ts';

interface PasswordReset extends PendingVerification {
  /** Null when the address has no active account. */
  userId: string | null;
}

type RequestCall = Parameters<AccountsHandlers['accounts.requestPasswordReset']>[0];
type ChangeCall = Parameters<AccountsHandlers['accounts.changePassword']>[0];
type ResetCall = Parameters<AccountsHandlers['accounts.resetPassword']>[0];

interface PasswordChangeOptions {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  passwords: Passwords;
  verification: EmailVerification;
  attemptLimits: Pick<AttemptLimits, 'clear'>;
  audit: AuditPort;
  changes: ChangesPort;
  background: Background;
}

export function passwordChange(
  options: PasswordChangeOptions,
): Pick<
  AccountsHandlers,
  'accounts.requestPasswordReset' | 'accounts.resetPassword' | 'accounts.changePassword'
> {
  return {
    'accounts.requestPasswordReset': (call) => requestReset(options, call),
    'accounts.resetPassword': (call) => resetPassword(options, call),
    'accounts.changePassword': (call) => changePassword(options, call),
  };
}

async function requestReset(
  { store, verification, background }: PasswordChangeOptions,
  { body, remoteAddress }: RequestCall,
) {
  const { bureau, email } = await verification.requireAddress(body);
  await verification.countCode(bureau, email, remoteAddress);
  const account = await store.findEmailAccount(bureau.bureauId, email);
  const userId = account?.state === 'active' ? account.userId : null;
  const code = userId === null ? null : newEmailCode();
  const content: PasswordReset = { bureauId: bureau.bureauId, email, userId, code };
  const answer = await verification.start('password_reset', content);
  // Send in the background: waiting for the mail server would make the request slower for addresses
  // that have an account, and so reveal them.
  if (code !== null)
    background.run(answer.body.verification_id, () =>
      verification.sendCode(bureau, { to: email, code, purpose: 'set a new password' }),
    );
  return answer;
}

async function resetPassword(options: PasswordChangeOptions, call: ResetCall) {
  const { store, passwords, verification, attemptLimits } = options;
  const { body, remoteAddress } = call;
  const requireAcceptable = (email: string | null) =>
    passwords.requireAcceptable(body.password, 'password', email);
  // First without the address, which only the verification names, so that most errors use up no attempt.
  requireAcceptable(null);
  const { userId, bureauId, email } = await verification.prove<PasswordReset>(
    'password_reset',
    body,
    remoteAddress,
    (reset) => requireAcceptable(reset.email),
  );
  if (userId === null) throw new Error('A code matched a password reset without a user.');
  const passwordDigest = await passwords.digest(body.password);
  const isBlocked = await store.tx(async (queries, tx) => {
    const user = await queries.lockUser(userId);
    if (user?.state !== 'active') return true;
    await replacePassword(options, { queries, tx, call, userId, passwordDigest });
    return false;
  });
  if (isBlocked) throw userBlocked();
  // Most resets follow wrong passwords. Clear their count, so that the new password works at once.
  await attemptLimits.clear('passwords', { bureauId, email, remoteAddress });
  return { status: 200 as const, body: { changed: true as const } };
}

async function changePassword(options: PasswordChangeOptions, call: ChangeCall) {
  const { store, passwords } = options;
  const { userId, bureauId, tokenId } = call.identity;
  const email = await requireChangeable(store, userId, tokenId);
  passwords.requireAcceptable(call.body.new_password, 'new_password', email);
  const account = await passwords.check(
    { bureauId, email, remoteAddress: call.remoteAddress },
    call.body.current_password,
  );
  if (account?.userId !== userId) throw wrongCurrentPassword();
  const passwordDigest = await passwords.digest(call.body.new_password);
  await store.tx(async (queries, tx) => {
    // A login takes the same lock, so a login with the former password cannot end after this.
    await queries.lockUser(userId);
    if ((await queries.findPasswordDigest(userId)) !== account.passwordDigest) throw wrongCurrentPassword();
    await replacePassword(options, { queries, tx, call, userId, passwordDigest, exceptTokenId: tokenId });
  });
  return { status: 200 as const, body: { changed: true as const } };
}

/** The user's e-mail address. Throws 403 for an API key and 409 for a user without a password. */
async function requireChangeable(store: AccountsStore, userId: string, tokenId: string): Promise<string> {
  const [user, token] = await Promise.all([store.findUser(userId), store.findToken(tokenId)]);
  if (token?.kind === 'key')
    throw new Problem('forbidden', 'forbidden_for_identity', 'An API key cannot change the password.');
  const hasPassword = (await store.findPasswordDigest(userId)) !== null;
  if (user?.email && hasPassword) return user.email;
  throw new Problem(
    'conflict',
    'conflict',
    'This user has no password to change; set one for an e-mail account with `/v1/accounts/password/forgot`.',
  );
}

/** Sets the password and revokes the user's tokens and pending logins, in the caller's transaction. */
async function replacePassword(
  { loginAttempts, audit, changes }: PasswordChangeOptions,
  {
    queries,
    tx,
    call,
    userId,
    passwordDigest,
    exceptTokenId,
  }: {
    queries: AccountsQueries;
    tx: Tx;
    call: ChangeCall | ResetCall;
    userId: string;
    passwordDigest: string;
    /** The token of the call, which stays valid. */
    exceptTokenId?: string;
  },
): Promise<void> {
  await queries.setPassword(userId, passwordDigest);
  // Attempts before tokens, in the order of `accounts.revokeTokens`: the opposite order could deadlock with
  // it.
  await loginAttempts.withSql(tx).deleteForUser(userId);
  await queries.revokeTokens({ userId, ...(exceptTokenId !== undefined && { exceptTokenId }) });
  await audit.record(tx, {
    ...originOf(call),
    action: call.operationId,
    target: { kind: 'user', id: userId },
    outcome: 'ok',
  });
  await changes.bump(tx);
}

function wrongCurrentPassword(): Problem {
  return wrongInput('The current password is wrong.');
}
