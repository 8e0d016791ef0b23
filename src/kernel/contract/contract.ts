// The contract at run time: reads the document, requires that it and the handlers
// agree, and serves only what the document declares.
import { channel } from 'node:diagnostics_channel';
import { nextTurn } from '../async.ts';
import type { Idempotency } from '../data/idempotency.ts';
import type { Log } from '../log.ts';
import type { HandlerCall } from './call.ts';
import type { OpenApiDocument } from './document.ts';
import {
  type ContractOperation,
  declaredResponse,
  readOperations,
  requireConsistency,
} from './operations.ts';
import { type CallerIdentity, createPipeline } from './pipeline.ts';
import type { AnyReply } from './reply.ts';
import { createReplyValidator, headerMismatch, type ReplyValidator } from './reply-validator.ts';
import type { ContractRequest } from './request.ts';
import { createRouter, type Route, type Router } from './router.ts';
import { createRequestValidator } from './validator.ts';

/** The message that is published for each error after its check against the document. */
export interface ObservedError {
  /** Empty for a request that was refused before its operation was known. */
  operationId: string;
  code: string;
  /** Undefined for an error within a stream. */
  answer: { status: number; body: unknown } | undefined;
}
/** The diagnostics channel on which an ObservedError is published for each error. */
export const observedErrors = 'townhall:contract:error';

export interface Contract {
  /** Handles the request. Every error for the caller is thrown as a Problem. */
  dispatch(request: ContractRequest): Promise<AnyReply>;
  /**
   * Checks the caller of the operation and sets `request.identity`. Throws the Problem that `dispatch` would
   * throw.
   */
  authenticate(request: ContractRequest): Promise<void>;
  /** Why the operation may not return the error; null if it may. Always null without `validateResponses`. */
  problemMismatch(
    request: ContractRequest,
    problem: { status: number; code: string },
    body: unknown,
  ): string | null;
  /** Like `problemMismatch`, for an error within a stream, whose status 200 is already sent. */
  streamProblemMismatch(request: ContractRequest, problem: { code: string }): string | null;
  /**
   * Why a response may not have these headers, or null; names in lower case. Always
   * null without `validateResponses`.
   */
  headerMismatch(
    request: ContractRequest,
    status: number,
    headers: () => Record<string, string>,
  ): string | null;
  /** Compiles all validators, one per turn of the event loop, so that no request waits for compilation. */
  warm(log: Log): Promise<void>;
}

export interface ContractOptions<Identity extends CallerIdentity> {
  /** The bundled document, an OpenAPI 3.1 object. */
  definition: object;
  /** The handlers by operationId: exactly the operations of the document. */
  handlers: Record<string, (call: never) => Promise<unknown>>;
  /** The identity kind that each security scheme admits. */
  identities: Record<string, string>;
  /** Returns the identity of a token; null or a thrown Problem for an invalid one. */
  identify: (token: string) => Promise<Identity | null>;
  /** The identity of a caller without a credential. */
  guest: Identity;
  /**
   * Counts a request once its caller is known, or throws, such as 429. The identity
   * is null for an invalid credential; the caller receives its 401 after this.
   */
  admit?: (
    request: ContractRequest,
    operation: ContractOperation,
    identity: Identity | null,
  ) => void | Promise<void>;
  /** Stores responses for operations that declare the header `Idempotency-Key`. */
  idempotency?: Idempotency;
  /** The owner of an Idempotency-Key; null for a caller without a distinct identity. */
  callerOf?: (identity: Identity) => string | null;
  /** Validates every response too; for tests, as it costs time. */
  validateResponses?: boolean;
}

/**
 * Throws an error that names every inconsistency when the document and the handlers
 * do not agree or an operation does not declare its callers.
 */
export function createContract<Identity extends CallerIdentity>(
  options: ContractOptions<Identity>,
): Contract {
  const document = options.definition as OpenApiDocument;
  const operations = readOperations(document, options.identities);
  requireConsistency(document, operations, options);
  const validator = createRequestValidator(document, operations);
  const replyValidator = createReplyValidator(validator.compile);
  const pipeline = createPipeline({
    ...options,
    router: createOperationRouter(operations),
    operations,
    validate: validator.validate,
    // The type of a handler is checked at its definition (operation.ts) and erased here.
    handlers: new Map(
      Object.entries(options.handlers as Record<string, (call: HandlerCall) => Promise<AnyReply>>),
    ),
  });

  const { validateResponses = false } = options;

  return {
    authenticate: pipeline.authenticate,
    async dispatch(request) {
      const reply = withDeprecation(await pipeline.run(request), request.operation);
      if (!validateResponses || !request.isHandled || !request.operation) return reply;
      return replyValidator.checkedReply(request.operation, reply);
    },
    ...(validateResponses ? createMismatchChecks(replyValidator) : noMismatchChecks),
    async warm(log) {
      for (const operation of operations) {
        await nextTurn();
        try {
          validator.prepare(operation);
        } catch (error) {
          const { operationId } = operation;
          log.error({ operationId, err: error }, 'a schema of the contract does not compile');
        }
      }
    },
  };
}

type MismatchChecks = Pick<Contract, 'problemMismatch' | 'streamProblemMismatch' | 'headerMismatch'>;

const noMismatchChecks: MismatchChecks = {
  problemMismatch: () => null,
  streamProblemMismatch: () => null,
  headerMismatch: () => null,
};

function createMismatchChecks({ jsonMismatch }: ReplyValidator): MismatchChecks {
  return {
    problemMismatch({ operation }, { status, code }, body) {
      const answer = { status, body };
      if (!operation) {
        observe({ operationId: '', code, answer });
        return null;
      }
      const { operationId } = operation;
      if (!declaredResponse(operation, status)) return `${operationId} does not declare the status ${status}`;
      observe({ operationId, code, answer });
      return codeMismatch(operation, code) ?? jsonMismatch(operation, status, body);
    },
    streamProblemMismatch({ operation }, { code }) {
      if (!operation) return null;
      observe({ operationId: operation.operationId, code, answer: undefined });
      return codeMismatch(operation, code);
    },
    headerMismatch: ({ operation }, status, headers) =>
      operation ? headerMismatch(operation, status, headers()) : null,
  };
}

// Tests subscribe to record which of the listed codes occurred.
function observe(error: ObservedError): void {
  channel(observedErrors).publish(error);
}

function codeMismatch({ operationId, errorCodes }: ContractOperation, code: string): string | null {
  return errorCodes?.has(code) === false ? `${operationId} does not list the error code ${code}` : null;
}

function withDeprecation(reply: AnyReply, operation: ContractOperation | undefined): AnyReply {
  if (operation?.deprecationHeaders === undefined) return reply;
  return { ...reply, headers: { ...operation.deprecationHeaders, ...reply.headers } };
}

// openapi-backend's matchOperation enumerates the operations of the document twice for every
// request, and lets another spelling or method of a literal path match a template such as
// `/v1/{service}/{action}`; router.ts does neither.
function createOperationRouter(operations: readonly ContractOperation[]): Router<ContractOperation> {
  const routes = new Map<string, Route<ContractOperation> & { operations: Map<string, ContractOperation> }>();
  for (const operation of operations) {
    const spansSlashes = operation.parameters.find(
      (parameter) => parameter.in === 'path' && parameter['x-spans-slashes'],
    )?.name;
    const route = routes.get(operation.path) ?? {
      template: operation.path,
      operations: new Map<string, ContractOperation>(),
      ...(spansSlashes === undefined ? {} : { spansSlashes }),
    };
    route.operations.set(operation.method, operation);
    routes.set(operation.path, route);
  }
  return createRouter([...routes.values()]);
}
