// Login attempts: starts them, passes inputs to their provider and finishes them with a person. `result.ts`
// reads their results.
import { id } from '../../../kernel/ids.ts';
import { invalidMember, Problem } from '../../../kernel/problem.ts';
import { tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { Bureau, BureauState } from '../../bureaus/index.ts';
import { wrongPassword } from '../providers/password-login.ts';
import type {
  InputProvider,
  InputStep,
  LoginContext,
  LoginInput,
  LoginProvider,
  Person,
  RedirectProvider,
} from '../providers/provider.ts';
import type { AccountsStore } from '../core/store.ts';
import type { OneTimeTokenStore } from './one-time-tokens-store.ts';
import { issueOneTimeToken, newOneTimeSecret } from './one-time-tokens.ts';
import type { RedirectBinding } from './redirect-target.ts';
import { newSecret, newUserCode, seal, unseal } from './sealed-secrets.ts';
import type { LoginAttempt, LoginAttemptQueries, LoginAttemptStore, NewLoginAttempt } from './store.ts';

export interface LoginTimes {
  /** An attempt expires after this time. */
  attemptSeconds: number;
  /** A result can be read again for this long after its first read. */
  rereadSeconds: number;
  /** The lifetime of the token of a login. */
  tokenSeconds: number;
}

export const defaultLoginTimes: LoginTimes = {
  attemptSeconds: 600,
  rereadSeconds: 60,
  tokenSeconds: 30 * 86_400,
};
const maxInputs = 5;

/** The next step of the client. */
export type NextStep =
  | { outcome: 'done' }
  | { outcome: 'input'; inputs: readonly LoginInput[] }
  | { outcome: 'redirect'; url: string; userCode?: string };

/** The content of an OAuth state token, read when the browser returns. */
export interface RedirectState {
  providerId: string;
  callbackUrl: string;
  memory: string;
  /** The code that the person compares on two screens. Absent when the attempt has a `redirect_to`. */
  userCode?: string;
}

export interface LoginAttempts {
  /** Starts an attempt. The `loginId` is a secret that is stored as a digest only. */
  start(
    provider: LoginProvider,
    bureau: Bureau,
    binding: RedirectBinding | null,
  ): Promise<{ loginId: string; next: NextStep }>;
  /**
   * Throws 404 `login_not_found`, 410 `login_spent`, 409 while the attempt waits for the browser,
   * and the provider's Problems.
   */
  continue(
    loginId: string,
    input: Readonly<Record<string, string>>,
    resolver: ProviderResolver,
  ): Promise<{ provider: string; next: NextStep }>;
  /**
   * Finishes a pending attempt: creates a user for a person who is new to the Bureau, and lets the
   * attempt's result issue a token for the user. Throws 403 `user_blocked`, and 410 when the attempt has
   * ended.
   */
  finish(attemptDigest: Buffer, bureauId: string, person: Person, loginCodeDigest?: Buffer): Promise<void>;
}

export interface ProviderResolver {
  /** Throws 404 for a provider that is not available in the context. */
  providerOf(providerId: string, context: LoginContext): LoginProvider;
  contextOf(bureauId: string): Promise<LoginContext>;
}

interface LoginAttemptOptions {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  oneTimeTokens: OneTimeTokenStore;
  times: LoginTimes;
  /** Throws 403 for a Bureau that is paused or archived. */
  refuseUnlessActive: (state: BureauState) => void;
  /** The address to which third parties send browsers back; null while it is not known. */
  callbackUrl: () => string | null;
}

export function createLoginAttempts(options: LoginAttemptOptions): LoginAttempts {
  const { store, loginAttempts, times, refuseUnlessActive } = options;

  return {
    finish: (digest, bureauId, person, loginCodeDigest) =>
      finishWithPerson(options, { digest, bureauId, person, loginCodeDigest }),

    async start(provider, bureau, binding) {
      const loginId = newSecret('login');
      const attempt = {
        digest: tokenDigest(loginId),
        bureauId: bureau.bureauId,
        provider: provider.id,
        ttlSeconds: times.attemptSeconds,
        maxInputs,
      };
      if (provider.kind === 'redirect')
        return { loginId, next: await startRedirect(options, provider, attempt, binding) };
      if (provider.kind === 'input') {
        await loginAttempts.insert({ ...attempt, awaits: 'input' });
        return { loginId, next: { outcome: 'input', inputs: provider.inputs } };
      }
      await store.tx(async (_queries, tx) => {
        const { userId } = await store.ensureUser(tx, bureau.bureauId, provider.person, id('usr'));
        await loginAttempts.withSql(tx).insert({ ...attempt, userId });
      });
      return { loginId, next: { outcome: 'done' } };
    },

    async continue(loginId, input, { providerOf, contextOf }) {
      const digest = tokenDigest(loginId);
      const attempt = requireAttempt(await loginAttempts.find(digest));
      refuseUnlessActive(attempt.bureauState);
      if (attempt.state !== 'pending' || attempt.isExpired || attempt.inputsLeft === 0)
        throw attemptEndedProblem();
      if (attempt.awaits !== 'input')
        throw new Problem('conflict', 'conflict', 'This login waits for the browser, not for an input.');
      const context = await contextOf(attempt.bureauId);
      const provider = providerOf(attempt.provider, context);
      if (provider.kind !== 'input') throw attemptEndedProblem();
      const state =
        attempt.sealedProviderState && unseal(loginId, 'login memory', attempt.sealedProviderState);
      requireInputs(input, provider.inputsAfter(state));
      const step = await countAndContinue(loginAttempts, digest, { provider, input, state, context });
      if (step.outcome === 'input') {
        await loginAttempts.setProviderState(digest, seal(loginId, 'login memory', step.state));
        return { provider: provider.id, next: { outcome: 'input', inputs: step.inputs } };
      }
      if ('person' in step)
        await finishWithPerson(options, { digest, bureauId: attempt.bureauId, person: step.person });
      else await finishWithPassword(options, digest, step);
      return { provider: provider.id, next: { outcome: 'done' } };
    },
  };
}

async function startRedirect(
  { store, loginAttempts, oneTimeTokens, callbackUrl: currentCallbackUrl }: LoginAttemptOptions,
  provider: RedirectProvider,
  attempt: NewLoginAttempt,
  binding: RedirectBinding | null,
): Promise<NextStep> {
  const callbackUrl = currentCallbackUrl();
  if (callbackUrl === null) throw new Error('A redirect provider is available without a callback URL.');
  const secret = newOneTimeSecret('oauth_state');
  // Call the third party before writing to the database: it may be unreachable.
  const { url, memory } = await provider.start({ callbackUrl, state: secret });
  const userCode = binding === null ? newUserCode() : undefined;
  const content: RedirectState = {
    providerId: provider.id,
    callbackUrl,
    memory,
    ...(userCode === undefined ? {} : { userCode }),
  };
  await store.tx(async (_queries, tx) => {
    await loginAttempts.withSql(tx).insert({ ...attempt, awaits: 'redirect', ...binding });
    await issueOneTimeToken(oneTimeTokens.withSql(tx), {
      purpose: 'oauth_state',
      secret,
      content,
      attemptDigest: attempt.digest,
      ttlSeconds: attempt.ttlSeconds,
    });
  });
  return { outcome: 'redirect', url, ...(userCode === undefined ? {} : { userCode }) };
}

/**
 * Counts an input before the provider checks it. An input is taken back when the check itself fails, for
 * example because the mail server is unreachable. The last wrong input ends the attempt.
 */
async function countAndContinue(
  loginAttempts: LoginAttemptStore,
  digest: Buffer,
  {
    provider,
    input,
    state,
    context,
  }: {
    provider: InputProvider;
    input: Readonly<Record<string, string>>;
    state: string | null;
    context: LoginContext;
  },
): Promise<InputStep> {
  const inputsLeft = await loginAttempts.countInput(digest);
  if (inputsLeft === null) throw attemptEndedProblem();
  try {
    return await provider.continue(input, state, context);
  } catch (error) {
    const isWrong = error instanceof Problem && error.kind === 'unauthenticated';
    if (!isWrong) await loginAttempts.uncountInput(digest);
    else if (inputsLeft === 0) await loginAttempts.fail(digest, 'too_many_tries');
    throw error;
  }
}

type FinishResult = 'done' | 'blocked' | 'ended';

async function finishWithPerson(
  { store, loginAttempts }: LoginAttemptOptions,
  {
    digest,
    bureauId,
    person,
    loginCodeDigest,
  }: { digest: Buffer; bureauId: string; person: Person; loginCodeDigest?: Buffer | undefined },
): Promise<void> {
  const result = await store.tx(async (_queries, tx) => {
    const { userId, state } = await store.ensureUser(tx, bureauId, person, id('usr'));
    const user = { userId, isBlocked: state !== 'active' };
    return finishAttempt(loginAttempts.withSql(tx), digest, user, loginCodeDigest);
  });
  requireDone(result);
}

async function finishWithPassword(
  { store, loginAttempts }: LoginAttemptOptions,
  digest: Buffer,
  { userId, passwordDigest }: { userId: string; passwordDigest: string },
): Promise<void> {
  const result = await store.tx(async (queries, tx) => {
    // A password reset takes the same lock, so a login with the old password cannot finish after the reset.
    const user = await queries.lockUser(userId);
    if ((await queries.findPasswordDigest(userId)) !== passwordDigest) throw wrongPassword();
    return finishAttempt(loginAttempts.withSql(tx), digest, { userId, isBlocked: user?.state !== 'active' });
  });
  requireDone(result);
}

async function finishAttempt(
  queries: LoginAttemptQueries,
  digest: Buffer,
  { userId, isBlocked }: { userId: string; isBlocked: boolean },
  loginCodeDigest?: Buffer,
): Promise<FinishResult> {
  if (isBlocked) {
    await queries.fail(digest, 'user_blocked');
    return 'blocked';
  }
  const isFinished = await queries.finish(digest, { userId, ...(loginCodeDigest && { loginCodeDigest }) });
  return isFinished ? 'done' : 'ended';
}

// Called after the transaction: throwing inside it would roll back the failed attempt's state.
function requireDone(result: FinishResult): void {
  if (result === 'blocked')
    throw new Problem('forbidden', 'user_blocked', 'This user is blocked and cannot log in.');
  if (result === 'ended') throw attemptEndedProblem();
}

/** Throws 404 `login_not_found` for null. */
export function requireAttempt(attempt: LoginAttempt | null): LoginAttempt {
  if (!attempt)
    throw new Problem('not_found', 'login_not_found', 'There is no such login attempt.', {
      param: 'login_id',
    });
  return attempt;
}

/** 410 `login_spent`. */
export function attemptEndedProblem(): Problem {
  return new Problem('gone', 'login_spent', 'This login attempt has ended; start another one.', {
    param: 'login_id',
  });
}

/** Throws 400 for a required input that is missing and for an input that the provider did not request. */
function requireInputs(input: Readonly<Record<string, string>>, expected: readonly LoginInput[]): void {
  const missingInput = expected.find(({ name, required }) => required && !input[name]);
  if (missingInput !== undefined) throw invalidMember(`input.${missingInput.name}`, 'is required');
  const unknownName = Object.keys(input).find((name) => !expected.some((entry) => entry.name === name));
  if (unknownName === undefined) return;
  // Do not repeat a long or unusual name from the request in the answer.
  if (!/^\w{1,64}$/.test(unknownName))
    throw invalidMember('input', 'has a member that is not one of the requested inputs');
  throw invalidMember(`input.${unknownName}`, 'is not one of the requested inputs');
}
