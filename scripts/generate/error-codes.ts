// Completes the error codes of each operation. A path file lists the errors of its handler
// (`x-error-codes`); families here add the codes of shared code, such as authentication, bodies and
// model calls.

import { type Document, type Operation, hasParameter, operationsOf, resolve } from './document.ts';
import type { Surface } from './surfaces.ts';

interface CodeFamily {
  /** The family's name in messages. */
  name: string;
  codes: readonly string[];
  appliesTo: (operation: Operation, surface: Pick<Surface, 'name'>, path: string) => boolean;
}

interface CodeList {
  enum: string[];
  'x-codes': Record<string, { status: number[] }>;
}

const isGateway = (surface: Pick<Surface, 'name'>) => surface.name === 'gateway';

function readsCredential(operation: Operation, surface: Pick<Surface, 'name'>): boolean {
  return operation['x-ignores-credential'] !== true && (isGateway(surface) || needsCredential(operation));
}

function needsCredential({ security = [] }: Operation): boolean {
  return security.length > 0 && security.every((requirement) => Object.keys(requirement).length > 0);
}

function acceptsMediaType({ requestBody }: Operation, mediaType: string): boolean {
  const { content = {} } = (requestBody ?? {}) as { content?: object };
  return mediaType in content;
}

function isPaid({ operationId = '', responses = {} }: Operation): boolean {
  return operationId.startsWith('ai.') && responses['402'] !== undefined;
}

const providerFailures = [
  'upstream_failed',
  'upstream_refused',
  'upstream_truncated',
  'provider_credentials',
  'upstream_timeout',
];
const instructions = [
  'sessions.execute',
  'sessions.executeInSession',
  'sessions.prompt',
  'sessions.compact',
  'sessions.regenerate',
];

const fileOperations = [
  'ai.getMedia',
  'ai.getClientVideoContent',
  'sessions.getAttachment',
  'sessions.execute',
  'sessions.executeInSession',
  'sessions.prompt',
];

/** A family's code applies to its operations that declare a status of the code. */
const codeFamilies: readonly CodeFamily[] = [
  {
    name: 'every operation',
    codes: ['invalid_request', 'internal_error', 'draining', 'not_ready', 'database_unavailable'],
    appliesTo: () => true,
  },
  {
    name: 'a path with ids',
    codes: ['invalid_path'],
    appliesTo: (_operation, _surface, path) => path.includes('{'),
  },
  {
    name: 'a JSON body',
    codes: ['invalid_json', 'duplicate_member'],
    appliesTo: (operation) => acceptsMediaType(operation, 'application/json'),
  },
  {
    name: 'a form',
    codes: ['duplicate_member'],
    appliesTo: (operation) => acceptsMediaType(operation, 'multipart/form-data'),
  },
  {
    name: 'a body',
    codes: ['request_too_large', 'unsupported_media_type'],
    appliesTo: ({ requestBody }) => requestBody !== undefined,
  },
  {
    name: 'a credential',
    codes: ['invalid_token'],
    appliesTo: readsCredential,
  },
  {
    name: 'a needed credential',
    codes: ['authentication_required'],
    appliesTo: needsCredential,
  },
  {
    name: 'an identity of the gateway',
    codes: ['bureau_paused', 'bureau_archived', 'rate_limited'],
    appliesTo: (operation, surface) => isGateway(surface) && readsCredential(operation, surface),
  },
  {
    name: 'a kind of identity',
    codes: ['forbidden_for_identity'],
    appliesTo: (operation, surface) => isGateway(surface) && needsCredential(operation),
  },
  {
    name: 'the guard of the agent',
    codes: ['forbidden_host', 'forbidden_origin'],
    appliesTo: (_operation, surface) => !isGateway(surface),
  },
  {
    name: 'an Idempotency-Key',
    codes: ['idempotency_key_in_use', 'idempotency_key_reused', 'result_not_replayable'],
    appliesTo: (operation) => hasParameter(operation, 'IdempotencyKey'),
  },
  {
    name: 'a paid call of a model',
    codes: [
      'insufficient_credits',
      'paid_calls_stopped',
      'model_not_found',
      'unsupported_by_model',
      ...providerFailures,
      'credits_busy',
      'journal_unavailable',
    ],
    appliesTo: isPaid,
  },
  {
    name: 'a stored file',
    codes: ['storage_unavailable'],
    appliesTo: ({ operationId = '' }) => fileOperations.includes(operationId),
  },
  {
    name: 'a session',
    codes: ['session_not_found'],
    appliesTo: (operation) => hasParameter(operation, 'SessionId'),
  },
  {
    name: 'an instruction',
    codes: [
      'conflict',
      'session_not_found',
      'session_archived',
      'session_busy',
      'queue_full',
      'rate_limited',
    ],
    appliesTo: ({ operationId = '' }) => [...instructions, 'chat.sendMessage'].includes(operationId),
  },
  {
    name: 'a run that the call waits for',
    codes: [
      'insufficient_credits',
      'model_not_found',
      'unsupported_reasoning_effort',
      'unsupported_by_model',
      ...providerFailures,
      'step_limit_reached',
      'run_interrupted',
      'run_cancelled',
      'plugin_refused',
    ],
    appliesTo: ({ operationId = '' }) => operationId.startsWith('sessions.execute'),
  },
  {
    name: 'an action of the project',
    codes: [
      'route_not_found',
      'method_not_allowed',
      'service_action_not_found',
      'service_invalid_input',
      'service_invalid_output',
      'service_not_configured',
      'service_refused',
      'service_timeout',
      'service_failed',
      'authentication_required',
      'forbidden_for_identity',
      'insufficient_credits',
    ],
    appliesTo: ({ operationId = '' }, surface) =>
      isGateway(surface) && operationId.startsWith('services.call'),
  },
];

/** The codes that the operation shares with others, each with the name of its family. */
export function sharedCodesOf(
  operation: Operation,
  surface: Pick<Surface, 'name'>,
  path: string,
): Map<string, string> {
  return new Map(
    codeFamilies
      .filter(({ appliesTo }) => appliesTo(operation, surface, path))
      .flatMap(({ name, codes }) => codes.map((code): [string, string] => [code, name])),
  );
}

/** Writes the complete list into each operation of the bundled document, in the contract's order of codes. */
export function completeErrorCodes(document: Document, surface: Pick<Surface, 'name'>): void {
  const list = document.components?.schemas?.['ProblemCode'] as unknown as CodeList | undefined;
  if (list === undefined) throw new Error(`${surface.name} refers to no list of problem codes`);
  const errors = operationsOf(document).flatMap(({ id, path, operation }) => {
    const statuses = Object.keys(operation.responses ?? {}).map(Number);
    const isDeclared = (code: string) =>
      (list['x-codes'][code]?.status ?? []).some((status) => statuses.includes(status));
    const ownCodes = operation['x-error-codes'] ?? [];
    const sharedCodes = [...sharedCodesOf(operation, surface, path).keys()].filter(isDeclared);
    const codes = new Set([...ownCodes, ...sharedCodes]);
    operation['x-error-codes'] = list.enum.filter((code) => codes.has(code));
    const wrongCodes = ownCodes.flatMap((code) => {
      if (!list.enum.includes(code)) return [`${id} lists the unknown code ${code}`];
      if (sharedCodes.includes(code)) return [`${id} lists ${code}, which every such operation has`];
      return isDeclared(code) ? [] : [`${id} lists ${code} and declares none of its statuses`];
    });
    const statusesWithoutCode = findStatusesWithoutCode(document, list, operation);
    return [
      ...wrongCodes,
      ...statusesWithoutCode.map((status) => `${id} declares ${status} and lists no code of it`),
    ];
  });
  if (errors.length > 0) throw new Error(`x-error-codes: ${errors.join('; ')}`);
}

/** The declared JSON error statuses without any code of the operation. */
function findStatusesWithoutCode(document: Document, list: CodeList, operation: Operation): string[] {
  const codes = operation['x-error-codes'] ?? [];
  return Object.entries(operation.responses ?? {})
    .filter(([status, response]) => {
      const { content = {} } = resolve<{ content?: object }>(document, response);
      return Number(status) >= 400 && 'application/json' in content;
    })
    .map(([status]) => status)
    .filter((status) => !codes.some((code) => list['x-codes'][code]?.status.includes(Number(status))));
}

/** The text of error-codes.gen.ts: a union for each operation, and all of them by operationId. */
export function writeErrorCodes(document: Document): string {
  const operations = operationsOf(document);
  const shortName = (id: string) => stemOf(id.split('.').at(-1) ?? id);
  const names = operations.map(({ id }) =>
    operations.filter((candidate) => shortName(candidate.id) === shortName(id)).length > 1
      ? id.split('.').map(stemOf).join('')
      : shortName(id),
  );
  const unions = operations.map(({ id, operation }, index) => {
    const codes = (operation['x-error-codes'] ?? []).map((code) => `\n  | '${code}'`).join('');
    const comment = `/** What \`${id}\` answers when it fails. */`;
    return `${comment}\nexport type ${names[index]}ErrorCode =${codes || ' never'};\n`;
  });
  const members = operations.map(({ id }, index) => `  '${id}': ${names[index]}ErrorCode;\n`);
  return `// Generated from x-error-codes in openapi/ by scripts/generate.ts; change the contract instead.

${unions.join('\n')}
/** The error codes of every operation, by its operationId. */
export interface OperationErrorCodes {
${members.join('')}}
`;
}

function stemOf(part: string): string {
  return part.charAt(0).toUpperCase() + part.slice(1);
}
