// The pipeline of a request: match, identify, authorize, read, validate, handle.
// Every rejection is thrown as a Problem.
import { type Idempotency, type Remember, rememberNothing } from '../data/idempotency.ts';
import { invalidToken, Problem } from '../problem.ts';
import { HandlerCall } from './call.ts';
import { type OperationInput, readInput } from './input.ts';
import type { ContractOperation } from './operations.ts';
import type { AnyReply } from './reply.ts';
import { type ContractRequest, readCredential } from './request.ts';
import type { RouteMatch, Router } from './router.ts';
import { createDialectLookup } from './dialect-lookup.ts';
import { explainNulByte } from './storable.ts';

/** The identity of the caller. `operations` limits a credential to some operations. */
export interface CallerIdentity {
  kind: string;
  operations?: ReadonlySet<string>;
}

export interface PipelineOptions<Identity extends CallerIdentity> {
  router: Router<ContractOperation>;
  operations: readonly ContractOperation[];
  /** Throws a 400 that names every invalid member. May coerce parameters in place. */
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

export interface Pipeline {
  run(request: ContractRequest): Promise<AnyReply>;
  /** Throws what `run` throws up to the authorization; nothing is read or handled. */
  authenticate(request: ContractRequest): Promise<void>;
}

export function createPipeline<Identity extends CallerIdentity>(
  options: PipelineOptions<Identity>,
): Pipeline {
  const { router } = options;
  const dialectOf = createDialectLookup(options.operations);

  /**
   * Throws a 400 for a path that cannot be decoded, in the error dialect of the operations that share its
   * prefix.
   */
  function matchRoute(request: ContractRequest): RouteMatch<ContractOperation> {
    try {
      return router.match(request.method.toLowerCase(), request.path);
    } catch (error) {
      request.errorDialect = dialectOf(request, { outcome: 'not_found' });
      throw error;
    }
  }

  return {
    async run(request) {
      const match = matchRoute(request);
      request.errorDialect = dialectOf(request, match);
      if (match.outcome === 'not_found') throw routeNotFound();
      if (match.outcome === 'method_not_allowed') return answerOptions(request, match.allow);
      const { operation, params } = match;
      const identity = await identifyCaller(options, request, operation);
      const input = await readInput(request, operation, params);
      options.validate(operation, input);
      request.isHandled = true;
      try {
        return await handle(options, request, operation, { identity, input });
      } catch (error) {
        throw explainNulByte(error, input.query, input.body);
      }
    },
    async authenticate(request) {
      const match = matchRoute(request);
      if (match.outcome !== 'found') throw routeNotFound();
      await identifyCaller(options, request, match.operation);
    },
  };
}

/** Throws a 401 or 403 for a caller that may not call the operation. */
async function identifyCaller<Identity extends CallerIdentity>(
  options: PipelineOptions<Identity>,
  request: ContractRequest,
  operation: ContractOperation,
): Promise<Identity> {
  request.operation = operation;
  request.identity = options.guest;
  const identity = await identify(options, request, operation);
  request.identity = identity;
  authorize(options, request, operation, identity);
  return identity;
}

/**
 * Calls `admit` for every attempt, even if the credential is unknown or its lookup fails, but not for an
 * operation that ignores credentials: its requests are not counted.
 */
async function identify<Identity extends CallerIdentity>(
  options: PipelineOptions<Identity>,
  request: ContractRequest,
  operation: ContractOperation,
): Promise<Identity> {
  const { guest } = options;
  if (operation.ignoresCredential) return guest;
  if (operation.keyHeaders.size > 0)
    request.credential = readCredential(request, operation.keyHeaders.keys());
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
  if (credential.kind === 'conflict') throw conflictingCredentials(credential.headers);
  if (identity === null) throw invalidToken();
  return identity;
}

function authorize<Identity extends CallerIdentity>(
  { guest }: PipelineOptions<Identity>,
  request: ContractRequest,
  operation: ContractOperation,
  identity: Identity,
): void {
  const { handlerId, isPublic } = operation;
  if (isPublic) return;
  const isAdmittedKind = admittedKinds(request, operation).has(identity.kind);
  const coversOperation = identity.operations?.has(handlerId) ?? true;
  if (isAdmittedKind && coversOperation) return;
  throw identity.kind === guest.kind ? authenticationRequired() : forbiddenForIdentity();
}

function handle<Identity extends CallerIdentity>(
  { handlers, idempotency, callerOf }: PipelineOptions<Identity>,
  request: ContractRequest,
  { handlerId: operationId, hasSecretResponse, errorDialect }: ContractOperation,
  { identity, input }: { identity: Identity; input: OperationInput },
): Promise<AnyReply> {
  const handler = handlers.get(operationId);
  if (!handler) throw new Error(`${operationId} has no handler, although createContract requires one.`);
  const call = (remember: Remember) =>
    handler(new HandlerCall(request, input, { operationId, identity, remember }));
  const key = input.headers['idempotency-key'];
  if (key === undefined || idempotency === undefined) return call(rememberNothing);
  const { path, query, body, rawBody, isForm } = input;
  return idempotency.runOnce(
    {
      operationId,
      caller: callerOf?.(identity) ?? null,
      key: key as string,
      request: { path, query, headers: modelHeaders(input.headers), body, rawBody, isForm },
      requestId: request.requestId,
      isSecret: hasSecretResponse,
      errorDialect,
      signal: request.signal,
    },
    call,
  );
}

/**
 * The AI SDK's gateway client names the model in a header, so the header is compared like the body: an
 * Idempotency-Key must not replay the answer of another model.
 */
function modelHeaders(headers: OperationInput['headers']): Record<string, unknown> | undefined {
  const entries = Object.entries(headers).filter(([name]) => /^ai-.*model-id$/.test(name));
  return entries.length === 0 ? undefined : Object.fromEntries(entries);
}

/**
 * The identity kinds that may call the operation with the header in which the request sends its credential.
 */
function admittedKinds(
  { credential }: ContractRequest,
  { admits, keyHeaders }: ContractOperation,
): ReadonlySet<string> {
  if (credential.kind !== 'bearer' || credential.keyHeader === undefined) return admits;
  return keyHeaders.get(credential.keyHeader) ?? noKinds;
}

const noKinds: ReadonlySet<string> = new Set();

function conflictingCredentials([first, second]: readonly [string, string]): Problem {
  return new Problem(
    'bad_request',
    'invalid_request',
    `The headers ${first} and ${second} hold different credentials; send one of them.`,
    { param: second },
  );
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

function authenticationRequired(): Problem {
  return new Problem('unauthenticated', 'authentication_required', 'This operation needs a credential.', {
    headers: { 'www-authenticate': 'Bearer' },
  });
}

function forbiddenForIdentity(): Problem {
  return new Problem(
    'forbidden',
    'forbidden_for_identity',
    'This kind of credential may not call this operation.',
  );
}
