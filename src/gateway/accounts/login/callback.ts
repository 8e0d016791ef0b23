// The last step of a redirect login, in the person's browser. Someone who starts an attempt and tricks
// another person into finishing it must not get that person's token. With a `redirect_to`, reading the
// token needs a code that only the finishing browser receives. Without a `redirect_to`, the person first
// compares a code on two screens (RFC 8628).
import { asProblem, Problem } from '../../../kernel/problem.ts';
import { tokenDigest } from '../../../kernel/secrets/secret.ts';
import type { Bureau, BureauState } from '../../bureaus/index.ts';
import type { Person, RedirectProvider } from '../providers/provider.ts';
import type { LoginAttempts, RedirectState } from './attempts.ts';
import type { OneTimeTokenStore } from './one-time-tokens-store.ts';
import { consumeOneTimeToken, issueOneTimeToken } from './one-time-tokens.ts';
import { pageHeaders, renderPage, type Page, type PageReply } from './pages.ts';
import { returnAddress } from './redirect-target.ts';
import { isSecret, newSecret } from './sealed-secrets.ts';
import type { LoginAttempt, LoginAttemptStore } from './store.ts';

type PageStatus = 200 | 400 | 403 | 502 | 503 | 504;
type StatusPage<Status extends PageStatus> = Status extends PageStatus
  ? { status: Status } & PageReply
  : never;
type CallbackReply = StatusPage<PageStatus> | { status: 303; headers: Record<string, string> };
// A decision involves no third party, so it cannot fail with 502 or 504.
type DecisionReply = StatusPage<Exclude<PageStatus, 502 | 504>>;

type Log = { warn(fields: object, message: string): void };

interface Confirmation {
  bureauId: string;
  person: Person;
}

export interface LoginCallback {
  /**
   * The browser returned from the third party. `search` is its whole query, encoded again, without a question
   * mark.
   */
  receive(query: { state?: string }, search: string, log: Log): Promise<CallbackReply>;
  /** The person compared the codes and submitted the form. */
  decide(form: Uint8Array): Promise<DecisionReply>;
}

interface CallbackOptions {
  attempts: LoginAttempts;
  loginAttempts: LoginAttemptStore;
  oneTimeTokens: OneTimeTokenStore;
  findBureau: (bureauId: string) => Promise<Bureau | null>;
  /** Throws 403 for a Bureau that is paused or archived. */
  refuseUnlessActive: (state: BureauState) => void;
  /** The configured provider; undefined when it is no longer configured. */
  redirectProvider: (providerId: string) => RedirectProvider | undefined;
  confirmSeconds: number;
}

/** An attempt whose browser has returned, with the content of its OAuth state. */
interface ReturnedLogin {
  digest: Buffer;
  attempt: LoginAttempt;
  redirect: RedirectState;
}

export function createCallback(options: CallbackOptions): LoginCallback {
  const { attempts, loginAttempts, oneTimeTokens, refuseUnlessActive } = options;

  async function receive(state: string | undefined, search: string, log: Log): Promise<CallbackReply> {
    if (state === undefined || !isSecret('state', state)) return unknownStatePage();
    const token = await consumeOneTimeToken<RedirectState>(oneTimeTokens, 'oauth_state', state);
    if (!token?.attemptDigest) return unknownStatePage();
    const { attemptDigest: digest, content: redirect } = token;
    const attempt = await loginAttempts.find(digest);
    if (!attempt || attempt.state !== 'pending' || attempt.isExpired) return unknownStatePage();
    const login = { digest, attempt, redirect };
    try {
      refuseUnlessActive(attempt.bureauState);
      const person = await identifyPerson(options, redirect, { state, query: search });
      return attempt.redirectTo === null
        ? await askToCompare(options, login, person)
        : await finishWithRedirect(options, login, attempt.redirectTo, person);
    } catch (error) {
      return failLogin(options, login, asProblem(error), log);
    }
  }

  async function decide(form: Uint8Array): Promise<StatusPage<PageStatus>> {
    const fields = new URLSearchParams(Buffer.from(form).toString('utf8'));
    const confirmation = fields.get('confirmation') ?? '';
    const decision = fields.get('decision');
    if (decision !== 'confirm' && decision !== 'cancel') return unknownStatePage();
    if (!isSecret('confirmation', confirmation)) return unknownStatePage();
    const token = await consumeOneTimeToken<Confirmation>(oneTimeTokens, 'confirmation', confirmation);
    if (!token?.attemptDigest) return unknownStatePage();
    const { attemptDigest: digest, content } = token;
    if (decision === 'cancel') {
      await loginAttempts.fail(digest, 'login_denied');
      return htmlPage(200, {
        title: 'The login was refused',
        paragraphs: ['No one was logged in. You can close this page.'],
      });
    }
    const attempt = await loginAttempts.find(digest);
    if (attempt) refuseUnlessActive(attempt.bureauState);
    await attempts.finish(digest, content.bureauId, content.person);
    return htmlPage(200, {
      title: 'You are logged in',
      paragraphs: ['Return to where you started the login. You can close this page.'],
    });
  }

  return {
    receive: ({ state }, search, log) =>
      receive(state, search, log).catch((error: unknown) => problemPage(asProblem(error))),
    decide: (form) =>
      decide(form).catch((error: unknown) => problemPage(asProblem(error))) as Promise<DecisionReply>,
  };
}

async function identifyPerson(
  { redirectProvider }: CallbackOptions,
  { providerId, callbackUrl, memory }: RedirectState,
  { state, query }: { state: string; query: string },
): Promise<Person> {
  const provider = redirectProvider(providerId);
  if (!provider)
    throw new Problem('bad_request', 'login_failed', 'This login provider is no longer available.');
  return provider.finish({ callbackUrl, state, query, memory });
}

async function finishWithRedirect(
  { attempts }: CallbackOptions,
  { digest, attempt }: ReturnedLogin,
  redirectTo: string,
  person: Person,
): Promise<CallbackReply> {
  const loginCode = newSecret('code');
  await attempts.finish(digest, attempt.bureauId, person, tokenDigest(loginCode));
  return sendBack(redirectTo, 'login_code', loginCode);
}

async function askToCompare(
  { findBureau, oneTimeTokens, confirmSeconds }: CallbackOptions,
  { digest, attempt, redirect }: ReturnedLogin,
  person: Person,
): Promise<CallbackReply> {
  const bureau = await findBureau(attempt.bureauId);
  const content: Confirmation = { bureauId: attempt.bureauId, person };
  const { secret } = await issueOneTimeToken(oneTimeTokens, {
    purpose: 'confirmation',
    content,
    attemptDigest: digest,
    ttlSeconds: confirmSeconds,
  });
  return htmlPage(200, {
    title: `Log in to ${bureau?.name ?? attempt.bureauId}?`,
    paragraphs: [
      [
        'A device is waiting to be logged in.',
        'Say yes only if your own device, where you started the login, shows this code.',
        'If someone sent you here, say no.',
      ].join(' '),
    ],
    form: { confirmation: secret, userCode: redirect.userCode ?? '' },
  });
}

/**
 * Fails the attempt and shows the failure in the browser. Rethrows an internal or temporary error, for which
 * the attempt stays pending until it expires: its OAuth state is used up.
 */
async function failLogin(
  { loginAttempts }: CallbackOptions,
  { digest, attempt, redirect }: ReturnedLogin,
  problem: Problem,
  log: Log,
): Promise<CallbackReply> {
  log.warn(
    { code: problem.code, provider: redirect.providerId, reason: reasonOf(problem) },
    'a redirect login failed',
  );
  if (problem.kind === 'internal' || problem.kind === 'unavailable') throw problem;
  await loginAttempts.fail(digest, errorOf(problem));
  return attempt.redirectTo === null
    ? problemPage(problem)
    : sendBack(attempt.redirectTo, 'login_error', errorOf(problem));
}

function sendBack(redirectTo: string, member: 'login_code' | 'login_error', value: string): CallbackReply {
  return { status: 303, headers: { ...pageHeaders, location: returnAddress(redirectTo, member, value) } };
}

function htmlPage<const Status extends PageStatus>(status: Status, page: Page): StatusPage<Status> {
  return { status, ...renderPage(page) } as StatusPage<Status>;
}

function unknownStatePage(): StatusPage<400> {
  return htmlPage(400, {
    title: 'This login cannot go on',
    paragraphs: [
      'It has expired, or this page was opened a second time. Start again where you wanted to log in.',
    ],
  });
}

function errorOf({ code }: Problem): string {
  return ['login_denied', 'user_blocked', 'upstream_failed', 'upstream_timeout'].includes(code)
    ? code
    : 'login_failed';
}

// The class and code of the library's error. Its message may quote the third party's answer.
function reasonOf({ cause }: Problem): string | undefined {
  if (!(cause instanceof Error)) return undefined;
  const { code } = cause as { code?: unknown };
  return typeof code === 'string' ? `${cause.name} ${code}` : cause.name;
}

/** Rethrows an internal error: the server logs it and answers without details. */
function problemPage(problem: Problem): StatusPage<PageStatus> {
  const restartAdvice = 'Start again where you wanted to log in.';
  if (problem.kind === 'internal') throw problem;
  if (problem.kind === 'unavailable')
    return htmlPage(503, {
      title: 'Temporarily unavailable',
      paragraphs: [`The server cannot log you in at the moment. ${restartAdvice}`],
    });
  if (problem.kind === 'upstream_timeout')
    return htmlPage(504, { title: 'The login provider did not answer in time', paragraphs: [restartAdvice] });
  if (problem.kind === 'upstream_failed')
    return htmlPage(502, { title: 'The login provider failed', paragraphs: [restartAdvice] });
  if (problem.kind === 'forbidden')
    return htmlPage(403, { title: 'The login was refused', paragraphs: [problem.message] });
  if (problem.kind === 'gone') return unknownStatePage();
  return htmlPage(400, {
    title: 'This login cannot go on',
    paragraphs: [`The answer of the login provider is invalid. ${restartAdvice}`],
  });
}
