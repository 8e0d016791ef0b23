// Codes for apps of other origins: the authorization code flow with PKCE (RFC 7636). A person logs
// in on a page of this server; the app gets a code in the browser's address and exchanges it, with
// its verifier, for a token.
import { createHash } from 'node:crypto';
import { Problem } from '../../../kernel/problem.ts';
import { secretsEqual, tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { BureauState } from '../../bureaus/index.ts';
import type { AccountsHandlers, RequireActiveBureau } from '../core/ports.ts';
import { serializeUser } from '../core/serialize-user.ts';
import type { AccountsStore } from '../core/store.ts';
import { newUserToken } from '../core/user-token.ts';
import { attemptEndedProblem, requireAttempt, type LoginTimes } from './attempts.ts';
import type { OneTimeTokenStore } from './one-time-tokens-store.ts';
import { consumeOneTimeToken, issueOneTimeToken } from './one-time-tokens.ts';
import { requireRedirectUri } from './redirect-target.ts';
import { requireProof } from './result.ts';
import { isSecret } from './sealed-secrets.ts';
import type { LoginAttempt, LoginAttemptStore } from './store.ts';

// Long enough: the browser only follows one redirect before the app exchanges the code.
const codeSeconds = 60;

const noStore = { 'cache-control': 'no-store' };

/** The app for which a code was issued. */
interface CodeContent {
  redirectUri: string;
  codeChallenge: string;
}

interface AppCodeOptions {
  store: AccountsStore;
  loginAttempts: LoginAttemptStore;
  oneTimeTokens: OneTimeTokenStore;
  times: Pick<LoginTimes, 'tokenSeconds'>;
  requireActiveBureau: RequireActiveBureau;
  /** Throws 403 for a Bureau that is paused or archived. */
  refuseUnlessActive: (state: BureauState) => void;
}

type ExchangeCall = Parameters<AccountsHandlers['accounts.issueLoginToken']>[0];

export function appCodeHandlers(
  options: AppCodeOptions,
): Pick<AccountsHandlers, 'accounts.issueLoginCode' | 'accounts.issueLoginToken'> {
  const { loginAttempts, oneTimeTokens } = options;
  return {
    'accounts.issueLoginCode': async ({ body }) => {
      const digest = tokenDigest(body.login_id);
      const attempt = requireAttempt(await loginAttempts.find(digest));
      const bureau = await options.requireActiveBureau(attempt.bureauId);
      requireFinished(attempt);
      requireProof(attempt, { loginCode: body.login_code, codeVerifier: body.code_verifier });
      const content: CodeContent = {
        redirectUri: requireRedirectUri(body.redirect_uri, bureau),
        codeChallenge: body.code_challenge,
      };
      const { secret, expiresAt } = await issueOneTimeToken(oneTimeTokens, {
        purpose: 'login_code',
        content,
        attemptDigest: digest,
        ttlSeconds: codeSeconds,
      });
      const url = new URL(content.redirectUri);
      url.searchParams.set('code', secret);
      url.searchParams.set('state', body.state);
      return {
        status: 200,
        headers: noStore,
        body: { url: url.href, expires_at: expiresAt.toISOString() },
      };
    },
    'accounts.issueLoginToken': async (call) => {
      const attemptDigest = await consumeCode(oneTimeTokens, call.body);
      const { userToken, expiresAt, user } = await issueToken(options, attemptDigest);
      return {
        status: 200,
        headers: noStore,
        body: { user_token: userToken, expires_at: expiresAt.toISOString(), user: serializeUser(user) },
      };
    },
  };
}

/** Throws 409 while the attempt waits for the person, 410 when it can no longer issue a token. */
function requireFinished({ state, isExpired, wasRead, userState }: LoginAttempt): void {
  if (state === 'pending' && !isExpired)
    throw new Problem('conflict', 'conflict', 'This login is not finished; continue it first.', {
      param: 'login_id',
    });
  if (state !== 'done' || isExpired || wasRead || userState !== 'active') throw attemptEndedProblem();
}

/** Deletes the code, even if the verifier or the address is wrong, and returns the digest of its attempt. */
async function consumeCode(
  oneTimeTokens: OneTimeTokenStore,
  { code, code_verifier: verifier, redirect_uri: redirectUri }: ExchangeCall['body'],
): Promise<Buffer> {
  const token = isSecret('app', code)
    ? await consumeOneTimeToken<CodeContent>(oneTimeTokens, 'login_code', code)
    : null;
  if (!token?.attemptDigest) throw wrongCode();
  const { codeChallenge, redirectUri: issuedRedirectUri } = token.content;
  const challenge = createHash('sha256').update(verifier, 'ascii').digest('base64url');
  const isSameAddress = URL.canParse(redirectUri) && new URL(redirectUri).href === issuedRedirectUri;
  if (!secretsEqual(challenge, codeChallenge) || !isSameAddress) throw wrongCode();
  return token.attemptDigest;
}

// The result of a login may be read again for a minute; a code issues its token once.
const rereadSeconds = 0;

/** Marks the attempt as read, so that neither another code nor a read of the result issues a second token. */
async function issueToken(
  { store, loginAttempts, times, refuseUnlessActive }: AppCodeOptions,
  attemptDigest: Buffer,
) {
  return store.tx(async (queries, tx) => {
    const attempts = loginAttempts.withSql(tx);
    const { userId } = (await attempts.find(attemptDigest)) ?? {};
    // Lock the user before the attempt, as a password reset does: the opposite order could deadlock with it.
    const user = userId ? await queries.lockUser(userId) : null;
    const attempt = await attempts.lock(attemptDigest, rereadSeconds);
    if (!attempt || attempt.state !== 'done' || !user) throw wrongCode();
    refuseUnlessActive(attempt.bureauState);
    if (attempt.isExpired || attempt.wasRead || user.state !== 'active') throw wrongCode();
    const { userToken, record } = newUserToken({
      userId: user.userId,
      kind: 'user',
      ttlSeconds: times.tokenSeconds,
    });
    const { expiresAt } = await queries.insertToken(record);
    await attempts.recordFirstRead(attemptDigest, { tokenId: record.tokenId, sealedToken: null });
    return { userToken, expiresAt, user };
  });
}

function wrongCode(): Problem {
  return new Problem(
    'unauthenticated',
    'invalid_credentials',
    'The code is unknown, used or expired, or its verifier or address is wrong; send the person to the login page again.',
    { headers: { 'www-authenticate': 'Bearer' } },
  );
}
