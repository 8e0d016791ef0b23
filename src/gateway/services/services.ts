// Calls actions of the project's services. Identities and input are checked against the action's definition; errors of an
// action go to the log, and the caller gets no details.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import { withTimeout } from '../../kernel/async.ts';
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
  projectServices: ReadonlyMap<string, ProjectService>;
  env: { get(key: string): string | undefined };
  resources: ResourcesOf;
  /** Null when the user was removed since its token was checked. */
  findUser(userId: string): Promise<ActionUser | null>;
  findBureau(bureauId: string): Promise<ActionBureau | null>;
  ledger: BillNeeds['ledger'];
  clock: Pick<Clock, 'monotonicMs'>;
  /** Timeout of an action. */
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

export function services(options: ServicesOptions): Services {
  const { projectServices, env, actionMs, clock, ledger } = options;

  async function call(method: 'GET' | 'POST', input: unknown): Promise<{ status: 200; body: unknown }> {
    const request = input as AnyCall;
    const { service, action } = find(request.path);
    if (action.method !== method) throw wrongMethod(action);
    requireIdentity(action, request);
    const body = await run({ service, action, request, input: readInput(action, request) });
    return { status: 200, body };
  }

  function find(path: AnyCall['path']): { service: ProjectService; action: Action } {
    const service = projectServices.get(path.service);
    // The router's own answer, as if the path did not exist.
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

  async function run(target: ActionRun): Promise<unknown> {
    const { service, action, request, input } = target;
    const { identity } = request;
    const [user, bureau] =
      identity.kind === 'user'
        ? await Promise.all([options.findUser(identity.userId), options.findBureau(identity.bureauId)])
        : [null, null];
    if (identity.kind === 'user' && (user === null || bureau === null)) throw invalidToken();
    const log = request.log.child({ service: service.id, action: action.id });
    const startedMs = clock.monotonicMs();
    const billing = createActionBilling(
      { ledger, clock },
      { identity, requestId: request.requestId, action: `${service.id}/${action.id}` },
    );
    const { charge } = billing;
    const actionCall: Omit<ActionCall, 'signal'> = {
      input,
      identity,
      user,
      bureau,
      env: readEnv(service),
      resources: options.resources(service),
      log,
      charge,
    };
    try {
      const output = await withTimeout(async (signal) => action.run({ ...actionCall, signal }), {
        ms: actionMs,
        signal: request.signal,
        error: () =>
          new Problem('upstream_timeout', 'service_timeout', 'The service did not answer in time.'),
      });
      const body = requireOutput(action, output);
      const answer = request.remember.inSettlement({ status: 200, body });
      await billing.settle(answer && { answer });
      return body;
    } catch (error) {
      const outcome = request.signal.aborted ? 'client_closed' : 'upstream_failed';
      await billing
        .release(outcome)
        .catch((releaseError: unknown) =>
          log.error({ err: releaseError }, 'the hold of an action could not be released'),
        );
      throw explainError(error, target, log);
    } finally {
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

interface ActionRun {
  service: ProjectService;
  action: Action;
  request: AnyCall;
  input: Record<string, unknown>;
}

function requireIdentity(action: Action, { identity, operationId }: AnyCall): void {
  // Machine credentials may be limited to listed operations.
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
    if (!read.ok) throw invalidInput(read.details);
    return read.value;
  }
  const input = (body as Record<string, unknown> | undefined) ?? {};
  const verdict = action.checkInput(input);
  if (!verdict.ok) throw invalidInput(verdict.details);
  return input;
}

function invalidInput(details: ProblemDetail[]): Problem {
  const [first] = details;
  const message = `The input does not fit the action${first === undefined ? '' : `: \`${first.path}\` ${first.message}`}.`;
  return new Problem('bad_request', 'service_invalid_input', message, {
    param: first?.path || null,
    details,
  });
}

/** Validates the answer as the caller will receive it, after a round trip through JSON. */
function requireOutput(action: Action, output: unknown): unknown {
  const answer: unknown = JSON.parse(JSON.stringify(output ?? null) ?? 'null');
  const verdict = action.checkOutput(answer);
  if (verdict.ok) return answer;
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

function explainError(error: unknown, { request }: ActionRun, log: Log): Problem {
  if (error instanceof Problem) return error;
  const refusal = readActionError(error);
  if (refusal !== null)
    return new Problem(refusal.kind, 'service_refused', refusal.message, { foreignCode: refusal.code });
  // An error after the client disconnected is usually a consequence of that.
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
