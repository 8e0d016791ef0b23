// The contract as the server uses it: it reads the document, requires that it and the handlers agree, and serves nothing
// that the document does not declare.
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
import { createReplyValidator, headerMismatch } from './reply-validator.ts';
import type { ContractRequest } from './request.ts';
import { createRouter, type Route, type Router } from './router.ts';
import { createRequestValidator } from './validator.ts';

export interface Contract {
  /** Handles the request. Whatever the caller is to hear as an error is thrown as a Problem. */
  dispatch(request: ContractRequest): Promise<AnyReply>;
  /** Why an error may not be sent for the operation, or null. Always null without `validateResponses`. */
  problemMismatch(
    request: ContractRequest,
    problem: { status: number; code: string },
    body: unknown,
  ): string | null;
  /** Why an answer may not carry these headers, or null; names in lower case. Always null without `validateResponses`. */
  headerMismatch(
    request: ContractRequest,
    status: number,
    headers: () => Record<string, string>,
  ): string | null;
  /** Compiles all validators, one a turn of the event loop, so that no request waits for its own. */
  warm(log: Log): Promise<void>;
}

export interface ContractOptions<Identity extends CallerIdentity> {
  /** The bundled document, an OpenAPI 3.1 object. */
  definition: object;
  /** By operationId; exactly the operations of the document. */
  handlers: Record<string, (call: never) => Promise<unknown>>;
  /** The identity kind that each security scheme admits. */
  identities: Record<string, string>;
  /** Whose token this is; null or a thrown Problem when it is not valid. */
  identify: (token: string) => Promise<Identity | null>;
  /** The identity of a caller without a credential. */
  guest: Identity;
  /**
   * Counts a request once its caller is known, or throws, such as 429. The identity is null for an invalid credential;
   * the caller receives its 401 after this.
   */
  admit?: (
    request: ContractRequest,
    operation: ContractOperation,
    identity: Identity | null,
  ) => void | Promise<void>;
  /** Stores answers for operations that declare the header `Idempotency-Key`. */
  idempotency?: Idempotency;
  /** To whom an Idempotency-Key belongs; null for a caller who cannot be told from others. */
  callerOf?: (identity: Identity) => string | null;
  /** Validates every response too; for tests, as it costs time. */
  validateResponses?: boolean;
}

/**
 * Throws, naming everything that is wrong, when the document and the handlers do not agree or an operation does not
 * declare who may call it.
 */
export function createContract<Identity extends CallerIdentity>(
  options: ContractOptions<Identity>,
): Contract {
  const document = options.definition as OpenApiDocument;
  const operations = readOperations(document, options.identities);
  requireConsistency(document, operations, options);
  const validator = createRequestValidator(document, operations);
  const replyValidator = createReplyValidator(validator.compile);
  const run = createPipeline({
    ...options,
    router: createOperationRouter(operations),
    validate: validator.validate,
    // The types of a handler are proven where it is written (operation.ts) and forgotten here.
    handlers: new Map(
      Object.entries(options.handlers as Record<string, (call: HandlerCall) => Promise<AnyReply>>),
    ),
  });

  return {
    async dispatch(request) {
      const reply = withDeprecation(await run(request), request.operation);
      if (!options.validateResponses || !request.isHandled || !request.operation) return reply;
      return replyValidator.checkedReply(request.operation, reply);
    },
    problemMismatch({ operation }, { status, code }, body) {
      if (!options.validateResponses || !operation) return null;
      const { operationId, errorCodes } = operation;
      if (!declaredResponse(operation, status)) return `${operationId} does not declare the status ${status}`;
      if (errorCodes?.has(code) === false) return `${operationId} does not list the error code ${code}`;
      return replyValidator.jsonMismatch(operation, status, body);
    },
    headerMismatch({ operation }, status, headers) {
      if (!options.validateResponses || !operation) return null;
      return headerMismatch(operation, status, headers());
    },
    async warm(log) {
      for (const operation of operations) {
        await new Promise((resolve) => setImmediate(resolve));
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

function withDeprecation(reply: AnyReply, operation: ContractOperation | undefined): AnyReply {
  if (operation?.deprecationHeaders === undefined) return reply;
  return { ...reply, headers: { ...operation.deprecationHeaders, ...reply.headers } };
}

// openapi-backend's matchOperation lists the operations of the document twice for every request, and lets another spelling
// or method of a literal path fall through to a template such as `/v1/{service}/{action}`; router.ts does neither.
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
