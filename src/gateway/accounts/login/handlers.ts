// The handlers of logins: list the providers, start and continue an attempt, read its result, and receive
// the browser when it returns from a third party.
import type {
  LoginFailed,
  LoginOutcome as LoginOutcomeBody,
  LoginResult,
} from '../../../contract/gateway/types.gen.ts';
import type { Background } from '../../../kernel/background.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Bureau } from '../../bureaus/index.ts';
import type { AttemptLimits } from '../core/attempt-limits.ts';
import type { AccountsHandlers, RequireActiveBureau } from '../core/ports.ts';
import type { LoginContext, LoginProvider } from '../providers/provider.ts';
import { serializeUser } from '../core/serialize-user.ts';
import type { LoginAttempts, NextStep } from './attempts.ts';
import type { LoginCallback } from './callback.ts';
import type { OneTimeTokenStore } from './one-time-tokens-store.ts';
import { redirectBinding, requireRedirectUri } from './redirect-target.ts';
import type { LoginOutcome, ReadLoginResult } from './result.ts';
import type { LoginAttemptStore } from './store.ts';

interface Caller {
  remoteAddress: string;
  request: { host: string; origin: string | undefined; headers: Readonly<Record<string, unknown>> };
}

// Headers that proxies, load balancers, tunnels and content delivery networks add to a request.
const proxyHeader = new RegExp(
  [
    '^(?:forwarded|via|x-forwarded|cdn-loop|client-ip|x-cluster-client-ip|x-coming-from)$',
    '^(?:x-forwarded|x-original|x-envoy|x-amzn?|x-amz-cf|x-azure|x-appengine|x-vercel|x-nf|x-ngrok)-',
    '^(?:x-cloud-trace|x-arr|cf|cloudfront|fastly|fly|akamai|tailscale|ngrok|do-connecting)-',
    '(?:^|-)(?:client|real|remote|connecting|user|source|src|peer|socket|origin|true)-?(?:ip|addr|address)$',
  ].join('|'),
);

// Answers with credentials must not be cached.
const noStore = { 'cache-control': 'no-store' };

interface LoginHandlerOptions {
  providers: readonly LoginProvider[];
  attempts: LoginAttempts;
  readResult: ReadLoginResult;
  callback: LoginCallback;
  loginAttempts: Pick<LoginAttemptStore, 'deleteExpired'>;
  oneTimeTokens: Pick<OneTimeTokenStore, 'deleteExpired'>;
  attemptLimits: Pick<AttemptLimits, 'deleteOld'>;
  background: Background;
  requireActiveBureau: RequireActiveBureau;
  /** The address of the login page; null while it is not known. */
  loginPageUrl: () => string | null;
}

export function loginHandlers(
  options: LoginHandlerOptions,
): Pick<
  AccountsHandlers,
  | 'accounts.listProviders'
  | 'accounts.startLogin'
  | 'accounts.continueLogin'
  | 'accounts.getLoginResult'
  | 'accounts.receiveOauthCallback'
  | 'accounts.decideLogin'
> {
  const { providers, attempts, readResult, callback, requireActiveBureau } = options;
  return {
    'accounts.listProviders': async (call) => {
      const bureau = await requireActiveBureau(call.query.bureau_id);
      if (call.query.redirect_uri !== undefined) requireRedirectUri(call.query.redirect_uri, bureau);
      const context = loginContext(bureau, call);
      const availableProviders = providers.filter((provider) => provider.available(context));
      const items = availableProviders.map(({ id, label, kind, inputs }) => ({
        id,
        label,
        kind,
        inputs: [...inputs],
      }));
      const { bureauId, name, color } = bureau;
      return { status: 200, body: { bureau: { bureau_id: bureauId, name, color }, items } };
    },
    'accounts.startLogin': async (call) => {
      const bureau = await requireActiveBureau(call.body.bureau_id);
      const provider = providerOf(providers, call.body.provider, loginContext(bureau, call));
      const binding = redirectBinding(call.body, bureau, options.loginPageUrl());
      const { loginId, next } = await attempts.start(
        provider,
        bureau,
        provider.kind === 'redirect' ? binding : null,
      );
      cleanUp(options);
      return { status: 200, headers: noStore, body: serializeOutcome(loginId, provider.id, next) };
    },
    'accounts.continueLogin': async (call) => {
      const { login_id: loginId, input } = call.body;
      const { provider, next } = await attempts.continue(loginId, input, {
        providerOf: (providerId, context) => providerOf(providers, providerId, context),
        contextOf: async (bureauId) => loginContext(await requireActiveBureau(bureauId), call),
      });
      return { status: 200, headers: noStore, body: serializeOutcome(loginId, provider, next) };
    },
    'accounts.getLoginResult': async (call) => {
      const { login_id: loginId, login_code: loginCode, code_verifier: codeVerifier } = call.query;
      const outcome = await readResult(loginId, { loginCode, codeVerifier });
      return { status: 200, headers: noStore, body: serializeResult(loginId, outcome) };
    },
    'accounts.receiveOauthCallback': async (call) => {
      const search = new URLSearchParams(call.query as Record<string, string>).toString();
      return callback.receive(call.query, search, call.log);
    },
    'accounts.decideLogin': async (call) => callback.decide(call.rawBody),
  };
}

function providerOf(
  providers: readonly LoginProvider[],
  providerId: string,
  context: LoginContext,
): LoginProvider {
  const provider = providers.find((candidate) => candidate.id === providerId && candidate.available(context));
  if (!provider)
    throw new Problem('not_found', 'provider_not_found', 'There is no such login provider.', {
      param: 'provider',
    });
  return provider;
}

function cleanUp({ background, loginAttempts, oneTimeTokens, attemptLimits }: LoginHandlerOptions): void {
  background.run('delete expired login attempts', () => loginAttempts.deleteExpired());
  background.run('delete expired one-time tokens', () => oneTimeTokens.deleteExpired());
  background.run('delete old attempt counters', () => attemptLimits.deleteOld());
}

function loginContext(bureau: Bureau, { remoteAddress, request }: Caller): LoginContext {
  const isForwarded = Object.keys(request.headers).some((name) => proxyHeader.test(name));
  return {
    bureauId: bureau.bureauId,
    bureauName: bureau.name,
    remoteAddress,
    host: request.host,
    origin: request.origin,
    isForwarded,
  };
}

function serializeOutcome(loginId: string, provider: string, next: NextStep): LoginOutcomeBody {
  const commonMembers = { login_id: loginId, provider };
  if (next.outcome === 'input') return { ...commonMembers, outcome: 'input', inputs: [...next.inputs] };
  if (next.outcome === 'done') return { ...commonMembers, outcome: 'done' };
  const userCode = next.userCode === undefined ? {} : { user_code: next.userCode };
  return { ...commonMembers, outcome: 'redirect', url: next.url, ...userCode };
}

function serializeResult(loginId: string, outcome: LoginOutcome): LoginResult {
  if (outcome.status === 'done') {
    return {
      login_id: loginId,
      status: 'done',
      user_token: outcome.userToken,
      expires_at: outcome.expiresAt.toISOString(),
      user: serializeUser(outcome.user),
    };
  }
  if (outcome.status !== 'failed') return { login_id: loginId, status: outcome.status };
  // The stored error is one of the contract's values: only this slice writes the column.
  const error = outcome.error === null ? {} : { error: outcome.error as NonNullable<LoginFailed['error']> };
  return { login_id: loginId, status: 'failed', ...error };
}
