// Describes the formats that pass through to providers which support them: the path, the check of an
// answer, the members with the model's name and the usage, and the end of a stream.
import {
  chatClaim,
  messagesClaim,
  type ReadClaim,
  rerankClaim,
  responsesClaim,
} from '../../metering/token-count.ts';
import type { PassthroughFormatName } from '../../providers/adapter/provider-adapter.ts';
import type { EndRule } from '../../upstream/events.ts';

export interface PassthroughFormat {
  name: PassthroughFormatName;
  /** The path below the provider's base URL. */
  path: string;
  endRule: EndRule;
  /** Whether a whole answer is in this format. */
  isAnswer: (value: Readonly<Record<string, unknown>>) => boolean;
  /** Whether a whole answer reports a failure; absent for formats that cannot. */
  hasFailed?: (value: Readonly<Record<string, unknown>>) => boolean;
  /** Members of an event whose objects hold the model's name. */
  modelNestedIn: readonly string[];
  /**
   * Members that limit the output. To a request without a limit the gateway adds the first of them, or the
   * provider's own member if `usesProviderLimit`; a provider without `output_limit_member` needs no limit.
   */
  limitMembers: readonly string[];
  /** Whether the provider's own member for the limit (`output_limit_member`) belongs to this format. */
  usesProviderLimit: boolean;
  /** Whether `stream_options.include_usage` requests the usage of a stream. */
  requestsUsage: boolean;
  /** Reads the token counts of the object in `usageMember`. */
  readClaim: ReadClaim;
  usageMember: string;
  /** The member of a stream's event whose object also holds usage, and whether those counts are final. */
  nestedUsage?: { member: string; isFinal: boolean };
  /** Types of the events before the first content; absent if the first event has content. */
  openingEvents?: ReadonlySet<string>;
  /** Members of an event and of a whole answer that hold text of the model. */
  textMembers: readonly string[];
  /** Serializes the frame that ends a stream which failed midway. `body` is the rendered Problem. */
  errorFrame: (body: { error: { code: string; message: string; param: string | null } }) => string;
}

function dataFrame(data: object): string {
  return `data: ${JSON.stringify(data)}\n\n`;
}

export const chat: PassthroughFormat = {
  name: 'chat',
  path: '/chat/completions',
  endRule: 'done',
  isAnswer: ({ choices }) => Array.isArray(choices),
  modelNestedIn: [],
  limitMembers: ['max_tokens', 'max_completion_tokens'],
  usesProviderLimit: true,
  requestsUsage: true,
  readClaim: chatClaim,
  usageMember: 'usage',
  textMembers: ['choices'],
  errorFrame: dataFrame,
};

export const completions: PassthroughFormat = {
  ...chat,
  name: 'completions',
  path: '/completions',
  limitMembers: ['max_tokens'],
  usesProviderLimit: false,
};

export const embeddings: PassthroughFormat = {
  name: 'embeddings',
  path: '/embeddings',
  endRule: 'done',
  isAnswer: ({ data }) => Array.isArray(data),
  modelNestedIn: [],
  limitMembers: [],
  usesProviderLimit: false,
  requestsUsage: false,
  readClaim: chatClaim,
  usageMember: 'usage',
  textMembers: [],
  errorFrame: dataFrame,
};

export const responses: PassthroughFormat = {
  name: 'responses',
  path: '/responses',
  endRule: 'responses',
  isAnswer: ({ object, output }) => object === 'response' && Array.isArray(output),
  hasFailed: ({ status }) => status === 'failed',
  modelNestedIn: ['response'],
  limitMembers: ['max_output_tokens'],
  usesProviderLimit: false,
  requestsUsage: false,
  readClaim: responsesClaim,
  usageMember: 'usage',
  nestedUsage: { member: 'response', isFinal: true },
  openingEvents: new Set(['response.created', 'response.queued', 'response.in_progress']),
  textMembers: ['delta', 'output'],
  // Clients of this format read the event's type, or its member `error`.
  errorFrame({ error }) {
    const { code, message, param } = error;
    return `event: error\n${dataFrame({ type: 'error', code, message, param, error })}`;
  },
};

export const messages: PassthroughFormat = {
  name: 'messages',
  path: '/messages',
  endRule: 'messages',
  isAnswer: ({ type, content }) => type === 'message' && Array.isArray(content),
  modelNestedIn: ['message'],
  limitMembers: ['max_tokens'],
  usesProviderLimit: false,
  requestsUsage: false,
  readClaim: messagesClaim,
  usageMember: 'usage',
  nestedUsage: { member: 'message', isFinal: false },
  openingEvents: new Set(['message_start', 'ping']),
  textMembers: ['delta', 'content'],
  errorFrame: ({ error }) => `event: error\n${dataFrame({ type: 'error', error })}`,
};

export const rerank: PassthroughFormat = {
  name: 'rerank',
  path: '/rerank',
  endRule: 'done',
  isAnswer: ({ results, data }) => Array.isArray(results) || Array.isArray(data),
  modelNestedIn: [],
  limitMembers: [],
  usesProviderLimit: false,
  requestsUsage: false,
  readClaim: rerankClaim,
  usageMember: 'usage',
  textMembers: [],
  errorFrame: dataFrame,
};

export const moderations: PassthroughFormat = {
  ...embeddings,
  name: 'moderations',
  path: '/moderations',
  isAnswer: ({ results }) => Array.isArray(results),
};
