// The login flow, built from its single operations: starts an attempt, sends its inputs, waits for a
// browser, and reads the result. The attempt's secrets stay here, or in the string that a web page
// stores while the browser is on another page.

import type { Services } from '../../shared/src/operations.ts';
import { sleep } from '../../shared/src/sleep.ts';
import { GatewayError } from './errors.ts';
import type { GatewayOperations } from './generated/sdk.gen.ts';
import type { LoginInput, LoginOutcome, LoginResult, User } from './generated/types.gen.ts';
import { deriveChallenge, randomText } from './pkce.ts';

/** The result of a login. */
export interface LoginSuccess {
  /** The credential. The server returns it only once. */
  userToken: string;
  expiresAt: Date;
  user: User;
}

/** A person's inputs by name. */
export type LoginInputs = Readonly<Record<string, string | undefined>>;

export interface LoginRequest {
  bureauId: string;
  /** An id from `client.accounts.listProviders()`. */
  provider: string;
  /**
   * Asks the person for the inputs of one step and returns them by name. Undefined inputs are not sent.
   * After a wrong input it is called again with the error in `previousError`; throw to give up.
   * Required by logins with inputs.
   */
  input?:
    | ((inputs: LoginInput[], previousError?: GatewayError) => LoginInputs | Promise<LoginInputs>)
    | undefined;
  /**
   * Sends the person to `url` in any browser. Show `userCode` too: the page asks the person whether
   * it shows the same code. Required by logins through a third party.
   */
  open?: ((page: { url: string; userCode: string }) => unknown) | undefined;
  /** Stops waiting; the login then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Milliseconds between two polls of an attempt that waits for a browser; 2,000 by default. */
  pollMs?: number | undefined;
}

export interface RedirectRequest {
  bureauId: string;
  provider: string;
  /** The address to which the browser returns. The Bureau must list its origin. */
  redirectTo: string;
  signal?: AbortSignal | undefined;
}

/** A started redirect login. */
export interface StartedRedirect {
  /** The address for the browser. */
  url: string;
  /**
   * Store it until the browser returns, for example in `sessionStorage`; it is a secret of this
   * browser.
   */
  resume: string;
}

export interface Login {
  /**
   * Log in
   *
   * For programs and devices with every kind of provider; a third party's page may open in any
   * browser. Throws a `GatewayError`, for a failed attempt with the code `login_denied`,
   * `login_failed`, `login_expired`, …
   */
  (request: LoginRequest): Promise<LoginSuccess>;
  /** Starts the login of a web page that redirects to a third party and back. */
  redirect(request: RedirectRequest): Promise<StartedRedirect>;
  /**
   * Finishes the login with the stored string and the address to which the browser returned; null when
   * that address has no login result.
   */
  finish(
    resume: string,
    address: string,
    options?: { signal?: AbortSignal | undefined },
  ): Promise<LoginSuccess | null>;
}

type Calls = Pick<Services<GatewayOperations>['accounts'], 'startLogin' | 'continueLogin' | 'getLoginResult'>;

export function createLogin(accounts: Calls): Login {
  return Object.assign((request: LoginRequest) => logIn(accounts, request), {
    redirect: (request: RedirectRequest) => startRedirect(accounts, request),
    finish: (resume: string, address: string, { signal }: { signal?: AbortSignal | undefined } = {}) =>
      finishRedirect(accounts, { resume, address, signal }),
  });
}

async function logIn(accounts: Calls, request: LoginRequest): Promise<LoginSuccess> {
  const { bureauId, provider, open, signal, pollMs = 2_000 } = request;
  let step = await accounts.startLogin({ bureau_id: bureauId, provider }, { signal });
  if (step.outcome === 'input') step = await answerInputs(accounts, step, request);
  if (step.outcome === 'redirect') {
    if (!open) throw new TypeError(`The login "${provider}" needs a browser; pass the function \`open\`.`);
    await open({ url: step.url ?? '', userCode: step.user_code ?? '' });
  }
  for (;;) {
    const result = await readResult(accounts, step.login_id, signal);
    if (result !== undefined && result.status !== 'pending') return successOf(result);
    await sleep(pollMs, signal);
  }
}

/** Sends inputs until the login needs no more of them. */
async function answerInputs(
  accounts: Calls,
  firstStep: LoginOutcome,
  { provider, input, signal }: LoginRequest,
): Promise<LoginOutcome> {
  if (!input) throw new TypeError(`The login "${provider}" asks for inputs; pass the function \`input\`.`);
  let step = firstStep;
  let previousError: GatewayError | undefined;
  while (step.outcome === 'input') {
    // Undefined members are absent from the body.
    const answers = (await input(step.inputs, previousError)) as Record<string, string>;
    previousError = undefined;
    try {
      step = await accounts.continueLogin({ login_id: step.login_id, input: answers }, { signal });
    } catch (error) {
      if (!GatewayError.isInstance(error) || error.code !== 'invalid_credentials') throw error;
      previousError = error;
    }
  }
  return step;
}

/** Undefined after a transient failure, such as an unreachable server: the login goes on. */
async function readResult(
  accounts: Calls,
  loginId: string,
  signal: AbortSignal | undefined,
): Promise<LoginResult | undefined> {
  try {
    return await accounts.getLoginResult({ login_id: loginId }, { signal });
  } catch (error) {
    if (GatewayError.isInstance(error) && error.retryable) return undefined;
    throw error;
  }
}

async function startRedirect(
  accounts: Calls,
  { bureauId, provider, redirectTo, signal }: RedirectRequest,
): Promise<StartedRedirect> {
  const verifier = randomText();
  const challenge = await deriveChallenge(verifier);
  const step = await accounts.startLogin(
    { bureau_id: bureauId, provider, redirect_to: redirectTo, code_challenge: challenge },
    { signal },
  );
  if (step.outcome !== 'redirect')
    throw new TypeError(`The login "${provider}" does not go to a third party; use \`login\`.`);
  return { url: step.url, resume: JSON.stringify([step.login_id, verifier]) };
}

async function finishRedirect(
  accounts: Calls,
  { resume, address, signal }: { resume: string; address: string; signal: AbortSignal | undefined },
): Promise<LoginSuccess | null> {
  const fragment = new URLSearchParams(address.slice(address.indexOf('#') + 1));
  const [code, refusal] = [fragment.get('login_code'), fragment.get('login_error')];
  if (!address.includes('#') || (code === null && refusal === null)) return null;
  if (code === null) throw loginError(refusal ?? 'login_failed');
  const [loginId, verifier] = JSON.parse(resume) as [string, string];
  return successOf(
    await accounts.getLoginResult(
      { login_id: loginId, login_code: code, code_verifier: verifier },
      { signal },
    ),
  );
}

function successOf(result: LoginResult): LoginSuccess {
  if (result.status === 'done')
    return { userToken: result.user_token, expiresAt: new Date(result.expires_at), user: result.user };
  if (result.status === 'expired') throw loginError('login_expired');
  throw loginError((result.status === 'failed' ? result.error : undefined) ?? 'login_failed');
}

const reasons: Readonly<Record<string, string>> = {
  login_denied: 'The login was refused.',
  login_expired: 'The login took too long; start another one.',
  too_many_tries: 'There were too many wrong inputs; start another login.',
  user_blocked: 'This user is blocked and cannot log in.',
};

function loginError(code: string): GatewayError {
  return new GatewayError({
    code,
    message: reasons[code] ?? 'The login failed.',
    type: 'authentication_error',
  });
}
