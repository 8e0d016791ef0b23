// The handlers of the login: which ways there are, and the steps of an attempt.
import type { LoginOutcome as WireOutcome, LoginResult } from '../../../contract/gateway/types.gen.ts';
import type { Background } from '../../../kernel/background.ts';
import { Problem } from '../../../kernel/problem.ts';
import type { Bureau } from '../../bureaus/index.ts';
import type { Guesses } from '../attempt-limits.ts';
import type { AccountsHandlers } from '../ports.ts';
import type { LoginContext, LoginProvider } from '../providers/provider.ts';
import type { TicketStore } from '../one-time-tokens-store.ts';
import { wireUser } from '../serialize-user.ts';
import type { Attempts, NextStep } from './attempts.ts';
import type { LoginCallback } from './callback.ts';
import { bindingOf } from './redirect-target.ts';
import type { AttemptStore } from './store.ts';

export interface LoginHandlerNeeds {
  providers: readonly LoginProvider[];
  attempts: Attempts;
  attemptStore: AttemptStore;
  tickets: TicketStore;
  callback: LoginCallback;
  guesses: Guesses;
  background: Background;
  servingBureau: (bureauId: string) => Promise<Bureau>;
}

interface Caller {
  remoteAddress: string;
  request: { host: string; origin: string | undefined; headers: Readonly<Record<string, unknown>> };
}

// Headers that proxies, load balancers, tunnels and content networks add to a request that they pass on.
const proxyHeader = new RegExp(
  [
    '^(?:forwarded|via|x-forwarded|cdn-loop|client-ip|x-cluster-client-ip|x-coming-from)$',
    '^(?:x-forwarded|x-original|x-envoy|x-amzn?|x-amz-cf|x-azure|x-appengine|x-vercel|x-nf|x-ngrok|x-cloud-trace|x-arr|cf|cloudfront|fastly|fly|akamai|tailscale|ngrok|do-connecting)-',
    '(?:^|-)(?:client|real|remote|connecting|user|source|src|peer|socket|origin|true)-?(?:ip|addr|address)$',
  ].join('|'),
);

// A credential in an answer must not end up in a cache.
const noStore = { 'cache-control': 'no-store' };

export function loginHandlers(
  needs: LoginHandlerNeeds,
): Pick<
  AccountsHandlers,
  | 'accounts.listProviders'
  | 'accounts.startLogin'
  | 'accounts.continueLogin'
  | 'accounts.getLoginResult'
  | 'accounts.receiveOauthCallback'
  | 'accounts.decideLogin'
> {
  const { providers, attempts, callback, guesses, background, servingBureau } = needs;

  function providerOf(providerId: string, context: LoginContext): LoginProvider {
    const found = providers.find((candidate) => candidate.id === providerId && candidate.available(context));
    if (!found)
      throw new Problem('not_found', 'provider_not_found', 'There is no such login provider here.', {
        param: 'provider',
      });
    return found;
  }

  function forgetOld(): void {
    background.run('forget old attempts', () => needs.attemptStore.forgetOld());
    background.run('forget old tickets', () => needs.tickets.forgetOld());
    background.run('forget old guesses', () => guesses.forgetOld());
  }

  return {
    'accounts.listProviders': async (call) => {
      const context = contextOf(await servingBureau(call.query.bureau_id), call);
      const usable = providers.filter((provider) => provider.available(context));
      return {
        status: 200,
        body: {
          items: usable.map(({ id, label, kind, inputs }) => ({ id, label, kind, inputs: [...inputs] })),
        },
      };
    },
    'accounts.startLogin': async (call) => {
      const bureau = await servingBureau(call.body.bureau_id);
      const provider = providerOf(call.body.provider, contextOf(bureau, call));
      const binding = bindingOf(call.body, bureau);
      const { loginId, next } = await attempts.start(
        provider,
        bureau,
        provider.kind === 'redirect' ? binding : null,
      );
      forgetOld();
      return { status: 200, headers: noStore, body: wireOutcome(loginId, provider.id, next) };
    },
    'accounts.continueLogin': async (call) => {
      const { login_id: loginId, input } = call.body;
      const { provider, next } = await attempts.continue(loginId, input, {
        providerOf,
        contextOf: async (bureauId) => contextOf(await servingBureau(bureauId), call),
      });
      return { status: 200, headers: noStore, body: wireOutcome(loginId, provider, next) };
    },
    'accounts.getLoginResult': async (call) => {
      const { login_id: loginId, login_code: loginCode, code_verifier: codeVerifier } = call.query;
      const outcome = await attempts.read(loginId, { loginCode, codeVerifier });
      return { status: 200, headers: noStore, body: wireResult(loginId, outcome) };
    },
    'accounts.receiveOauthCallback': async (call) => {
      const search = new URLSearchParams(call.query as Record<string, string>).toString();
      return callback.receive(call.query, search, call.log);
    },
    'accounts.decideLogin': async (call) => callback.decide(call.rawBody),
  };
}

function contextOf(bureau: Bureau, { remoteAddress, request }: Caller): LoginContext {
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

function wireOutcome(loginId: string, provider: string, next: NextStep): WireOutcome {
  const common = { login_id: loginId, provider, outcome: next.outcome };
  if (next.outcome === 'input') return { ...common, inputs: [...next.inputs] };
  if (next.outcome === 'redirect')
    return { ...common, url: next.url, ...(next.userCode === undefined ? {} : { user_code: next.userCode }) };
  return common;
}

function wireResult(loginId: string, outcome: Awaited<ReturnType<Attempts['read']>>): LoginResult {
  const common = { login_id: loginId, status: outcome.status };
  if (outcome.status === 'done') {
    return {
      ...common,
      user_token: outcome.userToken,
      expires_at: outcome.expiresAt.toISOString(),
      user: wireUser(outcome.user),
    };
  }
  // What is stored is one of the contract's words; only this slice writes it.
  return outcome.status === 'failed' && outcome.error !== null
    ? { ...common, error: outcome.error as LoginResult['error'] }
    : common;
}
