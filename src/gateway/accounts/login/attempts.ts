// The life of a login attempt: started, given its inputs or finished by a browser, read, spent. An attempt gives
// one token, minted by the first read; an answer that got lost on its way can be read again for a short while.
import { createHash } from 'node:crypto';
import { id } from '../../../kernel/ids.ts';
import { Problem } from '../../../kernel/problem.ts';
import { secretsEqual } from '../../../kernel/secrets/secret.ts';
import type { Bureau, BureauState } from '../../bureaus/index.ts';
import { wrongPassword } from '../providers/password-login.ts';
import type { InputStep, LoginContext, LoginInput, LoginProvider, Person } from '../providers/provider.ts';
import { newSecret, newUserCode, seal, secretDigest, unseal } from '../secret-box.ts';
import type { AccountsQueries, AccountsStore, User } from '../store.ts';
import type { TicketStore } from '../one-time-tokens-store.ts';
import { issueTicket, newTicketSecret } from '../one-time-tokens.ts';
import { newUserToken } from '../user-token.ts';
import type { Binding } from './redirect-target.ts';
import type { Attempt, AttemptQueries, AttemptStore } from './store.ts';

export interface LoginTimes {
  /** How long an attempt lives. */
  attemptSeconds: number;
  /** How long after its first read a result can be read again. */
  rereadSeconds: number;
  /** How long the token of a login lives. */
  tokenSeconds: number;
}

export const defaultLoginTimes: LoginTimes = {
  attemptSeconds: 600,
  rereadSeconds: 60,
  tokenSeconds: 30 * 86_400,
};
const maximumInputs = 5;

export interface AttemptNeeds {
  store: AccountsStore;
  attempts: AttemptStore;
  tickets: TicketStore;
  times: LoginTimes;
  refuseUnlessActive: (state: BureauState) => void;
  /** Where third parties send browsers back to; null while that is not known. */
  callbackUrl: () => string | null;
}

/** What comes next in an attempt. */
export type NextStep =
  | { outcome: 'done' }
  | { outcome: 'input'; inputs: readonly LoginInput[] }
  | { outcome: 'redirect'; url: string; userCode?: string };

export type LoginOutcome =
  | { status: 'pending' | 'expired' }
  | { status: 'failed'; error: string | null }
  | { status: 'done'; userToken: string; expiresAt: Date; user: User };

/** What the ticket of an OAuth state remembers until the browser is back. */
export interface RedirectMemory {
  providerId: string;
  callbackUrl: string;
  memory: string;
  /** Absent where the attempt has a `redirect_to`. */
  userCode?: string;
}

/** What came back to the product with the browser, and the proof that the product began. */
export interface Proof {
  loginCode: string | undefined;
  codeVerifier: string | undefined;
}

export interface Attempts {
  /** Starts one and returns its `login_id`, which is kept nowhere else. */
  start(
    provider: LoginProvider,
    bureau: Bureau,
    binding: Binding | null,
  ): Promise<{ loginId: string; next: NextStep }>;
  /** Throws 404 `login_not_found`, 410 `login_spent`, 409 where a browser is awaited, and what the provider throws. */
  continue(
    loginId: string,
    input: Readonly<Record<string, string>>,
    about: ContinueAbout,
  ): Promise<{ provider: string; next: NextStep }>;
  /** Throws 404 `login_not_found`, 410 `login_spent`, 401 for a wrong proof, or what `refuseUnlessActive` throws. */
  read(loginId: string, proof: Proof): Promise<LoginOutcome>;
  /**
   * The end of a pending attempt: the person is a user from now on, who gets the token. Throws 403
   * `user_blocked`, and 410 when the attempt is over.
   */
  finish(attemptDigest: Buffer, bureauId: string, person: Person, loginCodeDigest?: Buffer): Promise<void>;
}

export interface ContinueAbout {
  /** The provider of the attempt as it is here and now. */
  providerOf(providerId: string, context: LoginContext): LoginProvider;
  contextOf(bureauId: string): Promise<LoginContext>;
}

export function createAttempts(needs: AttemptNeeds): Attempts {
  const { store, attempts, tickets, times, refuseUnlessActive } = needs;

  async function finish(
    digest: Buffer,
    bureauId: string,
    person: Person,
    loginCodeDigest?: Buffer,
  ): Promise<void> {
    const end = await store.tx(async (_queries, tx): Promise<'done' | 'blocked' | 'over'> => {
      const { userId, state } = await store.ensureUser(tx, bureauId, person, id('usr'));
      return settle(attempts.within(tx), digest, { userId, isBlocked: state !== 'active' }, loginCodeDigest);
    });
    refuseEnd(end);
  }

  async function finishWithPassword(
    digest: Buffer,
    { userId, passwordDigest }: { userId: string; passwordDigest: string },
  ): Promise<void> {
    const end = await store.tx(async (queries, tx) => {
      // A reset takes the same lock, so that a login with the former password cannot end after it.
      const user = await queries.lockUser(userId);
      if ((await queries.findPasswordDigest(userId)) !== passwordDigest) throw wrongPassword();
      return settle(attempts.within(tx), digest, { userId, isBlocked: user?.state !== 'active' });
    });
    refuseEnd(end);
  }

  return {
    finish,
    async start(provider, bureau, binding) {
      const loginId = newSecret('login');
      const attempt = {
        digest: secretDigest(loginId),
        bureauId: bureau.bureauId,
        provider: provider.id,
        ttlSeconds: times.attemptSeconds,
        maxInputs: maximumInputs,
      };
      if (provider.kind === 'instant') {
        await store.tx(async (_queries, tx) => {
          const { userId } = await store.ensureUser(tx, bureau.bureauId, provider.person, id('usr'));
          await attempts.within(tx).insert({ ...attempt, userId });
        });
        return { loginId, next: { outcome: 'done' } };
      }
      if (provider.kind === 'input') {
        await attempts.insert({ ...attempt, awaits: 'input' });
        return { loginId, next: { outcome: 'input', inputs: provider.inputs } };
      }
      const callbackUrl = needs.callbackUrl();
      if (callbackUrl === null)
        throw new Error('A redirect provider is offered without an address to come back to.');
      const state = newTicketSecret('oauth_state');
      // Before anything is written: the third party may not be there.
      const { url, memory } = await provider.start({ callbackUrl, state });
      const userCode = binding === null ? newUserCode() : undefined;
      const content: RedirectMemory = {
        providerId: provider.id,
        callbackUrl,
        memory,
        ...(userCode === undefined ? {} : { userCode }),
      };
      await store.tx(async (_queries, tx) => {
        await attempts.within(tx).insert({ ...attempt, awaits: 'redirect', ...binding });
        await issueTicket(tickets.within(tx), {
          purpose: 'oauth_state',
          secret: state,
          content,
          attemptDigest: attempt.digest,
          ttlSeconds: times.attemptSeconds,
        });
      });
      return { loginId, next: { outcome: 'redirect', url, ...(userCode === undefined ? {} : { userCode }) } };
    },

    async continue(loginId, input, { providerOf, contextOf }) {
      const digest = secretDigest(loginId);
      const attempt = known(await attempts.find(digest));
      refuseUnlessActive(attempt.bureauState);
      if (attempt.state !== 'pending' || attempt.isExpired || attempt.inputsLeft === 0) throw over();
      if (attempt.awaits !== 'input')
        throw new Problem('conflict', 'conflict', 'This login waits for the browser, not for an input.');
      const context = await contextOf(attempt.bureauId);
      const provider = providerOf(attempt.provider, context);
      if (provider.kind !== 'input') throw over();
      const memory = attempt.sealedMemory && unseal(loginId, 'login memory', attempt.sealedMemory);
      checkInput(input, provider.inputsAfter(memory));
      const left = await attempts.countInput(digest);
      if (left === null) throw over();
      const step = await stepOrEnd(() => provider.continue(input, memory, context), digest, left);
      if (step.outcome === 'input') {
        await attempts.remember(digest, seal(loginId, 'login memory', step.memory));
        return { provider: provider.id, next: { outcome: 'input', inputs: step.inputs } };
      }
      if ('person' in step) await finish(digest, attempt.bureauId, step.person);
      else await finishWithPassword(digest, step);
      return { provider: provider.id, next: { outcome: 'done' } };
    },

    async read(loginId, proof) {
      const digest = secretDigest(loginId);
      const outcome = await store.tx(async (queries, tx): Promise<LoginOutcome | 'spent' | 'unproven'> => {
        const own = attempts.within(tx);
        const attempt = known(await own.lock(digest, times.rereadSeconds));
        refuseUnlessActive(attempt.bureauState);
        const isOver = attempt.wasRead ? false : attempt.isExpired;
        if (isOver) return { status: 'expired' };
        if (attempt.state === 'pending') return { status: 'pending' };
        if (attempt.state === 'failed' || attempt.userId === null)
          return { status: 'failed', error: attempt.error };
        if (!isProven(attempt, proof)) return 'unproven';
        if (attempt.wasRead) return readAgain(queries, own, { loginId, digest, attempt });
        // Blocked since the attempt was done: it comes to nothing.
        if (attempt.userState !== 'active') return { status: 'failed', error: null };
        const { userToken, record } = newUserToken({
          userId: attempt.userId,
          kind: 'user',
          ttlSeconds: times.tokenSeconds,
        });
        const { expiresAt } = await queries.insertToken(record);
        await own.noteFirstRead(digest, {
          tokenId: record.tokenId,
          sealedToken: seal(loginId, 'login result', userToken),
        });
        return done(queries, attempt.userId, userToken, expiresAt);
      });
      if (outcome === 'unproven') throw unproven(proof);
      // After the transaction, which had to commit for the sealed token to be gone.
      if (outcome === 'spent')
        throw new Problem(
          'gone',
          'login_spent',
          'This login was read already; log in again for another token.',
          { param: 'login_id' },
        );
      return outcome;
    },
  };

  async function stepOrEnd(step: () => Promise<InputStep>, digest: Buffer, left: number): Promise<InputStep> {
    try {
      return await step();
    } catch (error) {
      const isWrong = error instanceof Problem && error.kind === 'unauthenticated';
      // What was not looked at was no input.
      if (!isWrong) await attempts.giveInputBack(digest);
      else if (left === 0) await attempts.fail(digest, 'too_many_tries');
      throw error;
    }
  }
}

async function settle(
  attempts: AttemptQueries,
  digest: Buffer,
  who: { userId: string; isBlocked: boolean },
  loginCodeDigest?: Buffer,
): Promise<'done' | 'blocked' | 'over'> {
  if (who.isBlocked) {
    await attempts.fail(digest, 'user_blocked');
    return 'blocked';
  }
  const moved = await attempts.finish(digest, {
    userId: who.userId,
    ...(loginCodeDigest && { loginCodeDigest }),
  });
  return moved ? 'done' : 'over';
}

// Thrown after the transaction, so that what it wrote stays.
function refuseEnd(end: 'done' | 'blocked' | 'over'): void {
  if (end === 'blocked')
    throw new Problem('forbidden', 'user_blocked', 'This user is blocked and cannot log in.');
  if (end === 'over') throw over();
}

function known(attempt: Attempt | null): Attempt {
  if (!attempt)
    throw new Problem('not_found', 'login_not_found', 'There is no such login attempt.', {
      param: 'login_id',
    });
  return attempt;
}

function over(): Problem {
  return new Problem('gone', 'login_spent', 'This login attempt is over; start another one.', {
    param: 'login_id',
  });
}

function checkInput(input: Readonly<Record<string, string>>, asked: readonly LoginInput[]): void {
  const refuse = (name: string, message: string): never => {
    const path = `input.${name}`;
    throw new Problem('bad_request', 'invalid_request', `\`${path}\` ${message}.`, {
      param: path,
      details: [{ path, message }],
    });
  };
  for (const { name, required } of asked) if (required && !input[name]) refuse(name, 'is required');
  const unknown = Object.keys(input).find((name) => !asked.some((one) => one.name === name));
  if (unknown !== undefined) refuse(/^\w{1,64}$/.test(unknown) ? unknown : 'input', 'is not asked for');
}

function isProven({ codeChallenge, loginCodeDigest }: Attempt, { loginCode, codeVerifier }: Proof): boolean {
  if (codeChallenge === null) return true;
  if (loginCode === undefined || codeVerifier === undefined || loginCodeDigest === null) return false;
  const challenge = createHash('sha256').update(codeVerifier, 'ascii').digest('base64url');
  const isCode = secretsEqual(secretDigest(loginCode).toString('hex'), loginCodeDigest.toString('hex'));
  return secretsEqual(challenge, codeChallenge) && isCode;
}

function unproven({ loginCode, codeVerifier }: Proof): Problem {
  const missing =
    loginCode === undefined ? 'login_code' : codeVerifier === undefined ? 'code_verifier' : null;
  if (missing === null) {
    return new Problem('unauthenticated', 'invalid_credentials', 'The code or its verifier is wrong.', {
      headers: { 'www-authenticate': 'Bearer' },
    });
  }
  const message = 'is required to read this login';
  return new Problem('bad_request', 'invalid_request', `\`${missing}\` ${message}.`, {
    param: missing,
    details: [{ path: missing, message }],
  });
}

async function readAgain(
  queries: AccountsQueries,
  attempts: AttemptQueries,
  { loginId, digest, attempt }: { loginId: string; digest: Buffer; attempt: Attempt },
): Promise<LoginOutcome | 'spent'> {
  const { isReadable, sealedToken, tokenId, userId } = attempt;
  if (!isReadable || sealedToken === null || tokenId === null || userId === null) {
    if (sealedToken !== null) await attempts.dropSealedToken(digest);
    return 'spent';
  }
  if (attempt.userState !== 'active') return { status: 'failed', error: null };
  const stored = await queries.findToken(tokenId);
  if (!stored) return 'spent';
  return done(queries, userId, unseal(loginId, 'login result', sealedToken), stored.expiresAt);
}

async function done(
  queries: AccountsQueries,
  userId: string,
  userToken: string,
  expiresAt: Date,
): Promise<LoginOutcome> {
  const user = await queries.findUser(userId);
  if (!user) throw new Error('A login attempt outlived its user.');
  return { status: 'done', userToken, expiresAt, user };
}
