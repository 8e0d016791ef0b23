// The way of a request through the contract: match, identify, authorize, read, validate, handle. Every refusal is thrown
// as a Problem.
import { type Idempotency, type Remember, rememberNothing } from '../data/idempotency.ts';
import { Problem } from '../problem.ts';
import { HandlerCall } from './call.ts';
import { type OperationInput, readInput } from './input.ts';
import type { ContractOperation } from './operations.ts';
import type { AnyReply } from './reply.ts';
import type { ContractRequest } from './request.ts';
import type { Router } from './router.ts';
import { explainNulByte } from './storable.ts';

/** Who makes a request. `operations` limits a credential to some operations. */
export interface CallerIdentity {
  kind: string;
  operations?: ReadonlySet<string>;
}

export interface PipelineOptions<Identity extends CallerIdentity> {
  router: Router<ContractOperation>;
  /** Throws a 400 that names every member at fault. May coerce parameters in place. */
  validate(operation: ContractOperation, input: OperationInput): void;
  handlers: ReadonlyMap<string, (call: HandlerCall) => Promise<AnyReply>>;
  identify(token: string): Promise<Identity | null>;
  guest: Identity;
  admit?(
    request: ContractRequest,
    operation: ContractOperation,
    identity: Identity | null,
  ): void | Promise<void>;
  idempotency?: Idempotency | undefined;
  callerOf?(identity: Identity): string | null;
}

export function createPipeline<Identity extends CallerIdentity>(
  options: PipelineOptions<Identity>,
): (request: ContractRequest) => Promise<AnyReply> {
  const { router, guest, idempotency } = options;

  async function run(request: ContractRequest): Promise<AnyReply> {
    const match = router.match(request.method.toLowerCase(), request.path);
    if (match.outcome === 'not_found') throw routeNotFound();
    if (match.outcome === 'method_not_allowed') return answerOptions(request, match.allow);
    const { operation, params } = match;
    request.operation = operation;
    request.identity = guest;
    const identity = await identify(request, operation);
    request.identity = identity;
    authorize(operation, identity);
    const input = await readInput(request, operation, params);
    options.validate(operation, input);
    request.isHandled = true;
    try {
      return await handle(request, operation, { identity, input });
    } catch (error) {
      throw explainNulByte(error, input.query, input.body);
    }
  }

  /** Every attempt is counted by `admit`, also one whose credential is unknown or whose lookup fails. */
  async function identify(request: ContractRequest, operation: ContractOperation): Promise<Identity> {
    if (operation.ignoresCredential) return guest;
    const { credential } = request;
    if (credential.kind === 'none') {
      await options.admit?.(request, operation, guest);
      return guest;
    }
    let identity: Identity | null;
    try {
      identity = credential.kind === 'bearer' ? await options.identify(credential.token) : null;
    } catch (error) {
      await options.admit?.(request, operation, null);
      throw error;
    }
    await options.admit?.(request, operation, identity);
    if (identity === null) throw invalidToken();
    return identity;
  }

  function authorize(operation: ContractOperation, identity: Identity): void {
    const { operationId, isPublic, admits } = operation;
    if (isPublic) return;
    if (admits.has(identity.kind) && (identity.operations?.has(operationId) ?? true)) return;
    throw identity.kind === guest.kind ? authenticationRequired() : forbiddenForIdentity();
  }

  function handle(
    request: ContractRequest,
    { operationId, hasSecretResponse, errorDialect }: ContractOperation,
    { identity, input }: { identity: Identity; input: OperationInput },
  ): Promise<AnyReply> {
    const handler = options.handlers.get(operationId);
    if (!handler) throw new Error(`${operationId} has no handler, although the start requires one.`);
    const call = (remember: Remember) =>
      handler(new HandlerCall(request, input, { operationId, identity, remember }));
    const key = input.headers['idempotency-key'];
    if (key === undefined || idempotency === undefined) return call(rememberNothing);
    const { path, query, body, rawBody } = input;
    return idempotency.runOnce(
      {
        operationId,
        caller: options.callerOf?.(identity) ?? null,
        key: key as string,
        request: { path, query, body, rawBody },
        requestId: request.requestId,
        isSecret: hasSecretResponse,
        errorDialect,
        signal: request.signal,
      },
      call,
    );
  }

  return run;
}

function routeNotFound(): Problem {
  return new Problem('not_found', 'route_not_found', 'There is nothing at this path.');
}

function answerOptions({ method }: ContractRequest, allow: string): AnyReply {
  if (method === 'OPTIONS') return { status: 204, headers: { allow } };
  throw new Problem('method_not_allowed', 'method_not_allowed', `This path answers ${allow}.`, {
    headers: { allow },
  });
}

function invalidToken(): Problem {
  return new Problem('unauthenticated', 'invalid_token', 'The credential is not valid.', {
    headers: { 'www-authenticate': 'Bearer error="invalid_token"' },
  });
}

function authenticationRequired(): Problem {
  return new Problem('unauthenticated', 'authentication_required', 'This operation needs a credential.', {
    headers: { 'www-authenticate': 'Bearer' },
  });
}

function forbiddenForIdentity(): Problem {
  return new Problem(
    'forbidden',
    'forbidden_for_identity',
    'This operation is not for this kind of credential.',
  );
}
