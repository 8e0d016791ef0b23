// The generic call: one action of one service that the project brings. The identities are the action's own and
// are held here as the contract's are everywhere else; nothing of a failing action reaches the caller.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Log } from '../../kernel/log.ts';
import type { Call } from '../../kernel/contract/operation.ts';
import { Problem, type ProblemDetail } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import type { Requirement, Service } from '../service.ts';
import { createActionBilling, type BillNeeds } from './billing.ts';
import { readActionError, type ActionBureau, type ActionCall, type ActionUser } from './definition.ts';
import type { Action, ProjectService } from './registry.ts';
import type { ResourcesOf } from './resources.ts';

interface ServicesOptions {
  /** What `registerServices` gave. */
  projectServices: ReadonlyMap<string, ProjectService>;
  env: { get(key: string): string | undefined };
  resources: ResourcesOf;
  /** Who a user is; null when it is gone since its credential was looked at. */
  findUser(userId: string): Promise<ActionUser | null>;
  findBureau(bureauId: string): Promise<ActionBureau | null>;
  /** Takes what actions charge. */
  ledger: BillNeeds['ledger'];
  clock: Pick<Clock, 'monotonicMs'>;
  /** An action that takes longer is ended. */
  actionMs: number;
}

export interface Services extends Service<'services'> {
  /** The project's services, for the directory. */
  listed: readonly { name: string; title: string; env: readonly Requirement[] }[];
}

type AnyCall = Call<
  Operations[
    | 'services.callAction'
    | 'services.callStep'
    | 'services.callReadingAction'
    | 'services.callReadingStep'],
  Identity
>;

export function services(needs: ServicesOptions): Services {
  const { projectServices, env, actionMs, clock, ledger } = needs;

  async function call(method: 'GET' | 'POST', given: unknown): Promise<{ status: 200; body: unknown }> {
    const request = given as AnyCall;
    const { service, action } = find(request.path);
    if (action.method !== method) throw wrongMethod(action);
    requireIdentity(action, request);
    const input = readInput(action, request);
    const body = await answer({ service, action, request, input });
    return { status: 200, body };
  }

  function find(path: AnyCall['path']): { service: ProjectService; action: Action } {
    const service = projectServices.get(path.service);
    // As the router says it: whether there is such a service is all that the path asks.
    if (service === undefined)
      throw new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
    const id = 'step' in path ? `${path.action}/${path.step}` : path.action;
    const action = service.actions.get(id);
    if (action === undefined)
      throw new Problem(
        'not_found',
        'service_action_not_found',
        `The service ${service.id} has no such action.`,
      );
    return { service, action };
  }

  async function answer(run: Run): Promise<unknown> {
    const { service, action, request, input } = run;
    const { identity } = request;
    const [user, bureau] =
      identity.kind === 'user'
        ? await Promise.all([needs.findUser(identity.userId), needs.findBureau(identity.bureauId)])
        : [null, null];
    if (identity.kind === 'user' && (user === null || bureau === null)) throw invalidToken();
    const log = request.log.child({ service: service.id, action: action.id });
    const deadline = createDeadline(request.signal, actionMs);
    const startedMs = clock.monotonicMs();
    const bill = createActionBilling(
      { ledger, clock },
      { identity, requestId: request.requestId, action: `${service.id}/${action.id}` },
    );
    const { charge } = bill;
    const given: ActionCall = {
      input,
      identity,
      user,
      bureau,
      env: readEnv(service),
      resources: needs.resources(service),
      signal: deadline.signal,
      log,
      charge,
    };
    try {
      const output = await deadline.race(async () => action.run(given));
      const body = checkedOutput(action, output);
      const answer = request.remember.inSettlement({ status: 200, body });
      await bill.settle(answer && { answer });
      return body;
    } catch (error) {
      const outcome = request.signal.aborted ? 'client_closed' : 'upstream_failed';
      await bill
        .release(outcome)
        .catch((fault: unknown) =>
          log.error({ err: fault }, 'what an action had held could not be set free'),
        );
      throw problemOf(error, run, log);
    } finally {
      deadline.end();
      request.timing('action', clock.monotonicMs() - startedMs);
    }
  }

  function readEnv(service: ProjectService): Readonly<Record<string, string | undefined>> {
    const values = Object.fromEntries(service.env.map(({ key }) => [key, env.get(key)]));
    const missing = service.env.filter(({ key, required }) => required && (values[key] ?? '') === '');
    if (missing.length > 0) {
      throw new Problem(
        'unavailable',
        'service_not_configured',
        `The service ${service.id} is not configured yet.`,
        { headers: { 'retry-after': '60' } },
      );
    }
    return Object.freeze(values);
  }

  return {
    name: 'services',
    title: 'Services',
    env: [],
    listed: [...projectServices.values()].map(({ id, name, env: declared }) => ({
      name: id,
      title: name,
      env: declared,
    })),
    handlers: {
      'services.callAction': (request) => call('POST', request),
      'services.callStep': (request) => call('POST', request),
      'services.callReadingAction': (request) => call('GET', request),
      'services.callReadingStep': (request) => call('GET', request),
    },
  };
}

interface Run {
  service: ProjectService;
  action: Action;
  request: AnyCall;
  input: Record<string, unknown>;
}

function requireIdentity(action: Action, { identity, operationId }: AnyCall): void {
  // A credential that is good for some operations only is good for no other, here as everywhere.
  const isLimited = identity.kind === 'admin' && identity.operations?.has(operationId) === false;
  if (action.identities.has(identity.kind) && !isLimited) return;
  if (identity.kind !== 'guest')
    throw new Problem(
      'forbidden',
      'forbidden_for_identity',
      'This action is not for this kind of credential.',
    );
  throw new Problem('unauthenticated', 'authentication_required', 'This action needs a credential.', {
    headers: { 'www-authenticate': 'Bearer' },
  });
}

function wrongMethod(action: Action): Problem {
  const allow = action.method === 'GET' ? 'GET, HEAD, OPTIONS' : 'POST, OPTIONS';
  return new Problem('method_not_allowed', 'method_not_allowed', `This path answers ${allow}.`, {
    headers: { allow },
  });
}

function readInput(action: Action, { body, query }: AnyCall): Record<string, unknown> {
  if (action.method === 'GET') {
    const read = action.checkQuery(query as Record<string, unknown>);
    if (!read.ok) throw unfit(read.details);
    return read.value;
  }
  const input = (body as Record<string, unknown> | undefined) ?? {};
  const verdict = action.checkInput(input);
  if (!verdict.ok) throw unfit(verdict.details);
  return input;
}

function unfit(details: ProblemDetail[]): Problem {
  const [first] = details;
  const message = `The input does not fit the action${first === undefined ? '' : `: \`${first.path}\` ${first.message}`}.`;
  return new Problem('bad_request', 'service_invalid_input', message, {
    param: first?.path || null,
    details,
  });
}

/** What a caller will see of the answer, held against the action's own schema. */
function checkedOutput(action: Action, output: unknown): unknown {
  const seen: unknown = JSON.parse(JSON.stringify(output ?? null) ?? 'null');
  const verdict = action.checkOutput(seen);
  if (verdict.ok) return seen;
  const cause = new Error(
    `The answer does not fit the action's output: ${verdict.details.map(({ path, message }) => `${path || 'it'} ${message}`).join('; ')}.`,
  );
  throw new Problem(
    'internal',
    'service_invalid_output',
    'The service gave an answer that it does not promise.',
    { cause },
  );
}

function problemOf(error: unknown, { request }: Run, log: Log): Problem {
  if (error instanceof Problem) return error;
  const refusal = readActionError(error);
  if (refusal !== null)
    return new Problem(refusal.kind, 'service_refused', refusal.message, { foreignCode: refusal.code });
  // The caller is gone, and what the action made of that is no failure of it.
  if (request.signal.aborted) log.debug({ err: error }, 'an action ended with its caller');
  return new Problem(
    'internal',
    'service_failed',
    'The service failed at this; the request id leads to it in our log.',
    { cause: error },
  );
}

function invalidToken(): Problem {
  return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
    headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
  });
}

interface Deadline {
  signal: AbortSignal;
  /** The work's answer, or a Problem at the deadline and when the caller is gone: work that ignores its signal is left behind. */
  race<T>(work: () => Promise<T>): Promise<T>;
  end(): void;
}

function createDeadline(outer: AbortSignal, ms: number): Deadline {
  const late = new AbortController();
  const tooLate = new Problem('upstream_timeout', 'service_timeout', 'The service did not answer in time.');
  const timer = setTimeout(() => late.abort(tooLate), ms);
  const signal = AbortSignal.any([outer, late.signal]);
  return {
    signal,
    async race(work) {
      const ended = Promise.withResolvers<never>();
      const stop = (): void => ended.reject(signal.reason);
      signal.addEventListener('abort', stop, { once: true });
      if (signal.aborted) stop();
      // Whoever loses may still fail; nobody waits for that any more.
      ended.promise.catch(() => undefined);
      const running = work();
      running.catch(() => undefined);
      try {
        return await Promise.race([running, ended.promise]);
      } finally {
        signal.removeEventListener('abort', stop);
      }
    },
    end: () => clearTimeout(timer),
  };
}
