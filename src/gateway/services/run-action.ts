// Runs one action of a project's service: prepares its arguments, applies the timeout, and settles its
// charges.
import type { Operations } from '../../contract/gateway/operations.gen.ts';
import { withTimeout } from '../../kernel/async.ts';
import type { Clock } from '../../kernel/clock.ts';
import type { Call } from '../../kernel/contract/operation.ts';
import type { Log } from '../../kernel/log.ts';
import { runAs } from '../../kernel/operator-errors.ts';
import { invalidToken, Problem } from '../../kernel/problem.ts';
import type { Identity } from '../identity.ts';
import { createActionBilling, type BillingOptions } from './billing.ts';
import { readActionError, type ActionBureau, type ActionCall, type ActionUser } from './definition.ts';
import type { Action, ProjectService } from './registry.ts';
import { serviceCode } from './service-code.ts';
import type { ResourcesOf } from './resources.ts';

export interface RunOptions {
  env: { get(key: string): string | undefined };
  resources: ResourcesOf;
  /** Null when the user was removed after the token was checked. */
  findUser(userId: string): Promise<ActionUser | null>;
  findBureau(bureauId: string): Promise<ActionBureau | null>;
  ledger: BillingOptions['ledger'];
  clock: Pick<Clock, 'monotonicMs'>;
  /** The timeout of an action, in milliseconds. */
  actionMs: number;
}

export type ActionRequest = Call<
  Operations[
    | 'services.callAction'
    | 'services.callStep'
    | 'services.callReadingAction'
    | 'services.callReadingStep'],
  Identity
>;

export interface ActionRun {
  service: ProjectService;
  action: Action;
  request: ActionRequest;
  input: Record<string, unknown>;
}

/** Resolves with the validated output. Throws a Problem for every error; details go to the log. */
export async function runAction(target: ActionRun, options: RunOptions): Promise<unknown> {
  const { service, action, request } = target;
  const { ledger, clock, actionMs } = options;
  const owner = await findOwner(request.identity, options);
  const log = request.log.child({ service: service.id, action: action.id });
  const run = (call: ActionCall) => runAs(serviceCode(log), () => action.run(call));
  const startedMs = clock.monotonicMs();
  const billing = createActionBilling(
    { ledger, clock },
    { identity: request.identity, requestId: request.requestId, action: `${service.id}/${action.id}` },
  );
  const actionCall: Omit<ActionCall, 'signal'> = {
    input: target.input,
    identity: request.identity,
    ...owner,
    env: readEnv(service, options.env),
    resources: options.resources(service),
    log,
    charge: billing.charge,
  };
  try {
    const output = await withTimeout(async (signal) => run({ ...actionCall, signal }), {
      ms: actionMs,
      signal: request.signal,
      error: () => new Problem('upstream_timeout', 'service_timeout', 'The service did not answer in time.'),
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

/**
 * The user and Bureau of the caller; both null for guests and administrators. Throws 401 when the user or the
 * Bureau was removed meanwhile.
 */
async function findOwner(
  identity: Identity,
  { findUser, findBureau }: Pick<RunOptions, 'findUser' | 'findBureau'>,
): Promise<{ user: ActionUser | null; bureau: ActionBureau | null }> {
  if (identity.kind !== 'user') return { user: null, bureau: null };
  const [user, bureau] = await Promise.all([findUser(identity.userId), findBureau(identity.bureauId)]);
  if (user === null || bureau === null) throw invalidToken();
  return { user, bureau };
}

/** The declared variables of the service. Throws 503 while a required variable is missing. */
function readEnv(
  service: ProjectService,
  env: RunOptions['env'],
): Readonly<Record<string, string | undefined>> {
  const values = Object.fromEntries(service.env.map(({ key }) => [key, env.get(key)]));
  const isMissing = service.env.some(({ key, required }) => required && (values[key] ?? '') === '');
  if (isMissing) {
    throw new Problem(
      'unavailable',
      'service_not_configured',
      `The service ${service.id} is not configured yet.`,
      { headers: { 'retry-after': '60' } },
    );
  }
  return Object.freeze(values);
}

/** Validates the answer as the caller will receive it, after a round trip through JSON. */
function requireOutput(action: Action, output: unknown): unknown {
  const answer: unknown = JSON.parse(JSON.stringify(output ?? null) ?? 'null');
  const verdict = action.checkOutput(answer);
  if (verdict.ok) return answer;
  const reasons = verdict.details.map(({ path, message }) => `${path || 'it'} ${message}`);
  const cause = new Error(
    `The answer does not match the schema of the action's output: ${reasons.join('; ')}.`,
  );
  throw new Problem(
    'internal',
    'service_invalid_output',
    'The output of the service does not match its declared schema.',
    { cause },
  );
}

function explainError(error: unknown, { request }: ActionRun, log: Log): Problem {
  if (error instanceof Problem) return error;
  const refusal = readActionError(error);
  if (refusal !== null)
    return new Problem(refusal.kind, 'service_refused', refusal.message, { externalCode: refusal.code });
  // Once the client has disconnected, the action's error is usually only the abort.
  if (request.signal.aborted) log.debug({ err: error }, 'an action failed after its client disconnected');
  return new Problem(
    'internal',
    'service_failed',
    'The service failed; find details in the log by the request id.',
    { cause: error },
  );
}
