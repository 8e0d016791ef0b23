// Handlers of the AI SDK's embedding and reranking models. They call the formats that pass through and
// convert the answers to the SDK's format.
import type { Operations } from '../../../contract/gateway/operations.gen.ts';
import { parseJsonOrUndefined } from '../../../kernel/json-value.ts';
import { Problem } from '../../../kernel/problem.ts';
import {
  type AiContext,
  type AiHandlers,
  answerForReplay,
  creditsHeader,
  settleAndRender,
} from '../calls/context.ts';
import type { Bill } from '../billing/bill.ts';
import { type Catalog, viewerOf } from '../catalog/catalog.ts';
import type { PassthroughAnswer } from '../formats/passthrough/answer.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { toRanking, toSdkEmbeddings } from '../formats/passthrough/sdk-answers.ts';
import type { Warning } from '../hub/language-model.ts';
import { type SdkOptions, optionsFor } from '../media/sdk-media.ts';
import { type RenameMember, withMemberNames } from './member-names.ts';
import { callPassthrough, type PassthroughOutcome } from './passthrough.ts';
import { type PassthroughReply, type PassthroughRequest, withPassthroughBody } from './passthrough-reply.ts';

type EmbeddingCall = Parameters<AiHandlers['ai.embedSdkValues']>[0];
type RerankingCall = Parameters<AiHandlers['ai.rerankSdkDocuments']>[0];
type RerankingBody = Operations['ai.rerankSdkDocuments']['body'];

export function sdkEmbeddingHandlers(
  context: AiContext,
): Pick<AiHandlers, 'ai.embedSdkValues' | 'ai.rerankSdkDocuments'> {
  return {
    'ai.embedSdkValues': (call) => embed(context, call),

    'ai.rerankSdkDocuments': (call) => rerank(context, call),
  };
}

async function embed(context: AiContext, call: EmbeddingCall): Promise<PassthroughReply> {
  const { values, dimensions, providerOptions } = call.body;
  const { model, optionsForProvider, warnings, rename } = readTarget(context.catalog, call, providerOptions);
  const request = withPassthroughBody(call, {
    ...optionsForProvider,
    model,
    input: values,
    encoding_format: 'float',
    ...(dimensions === undefined ? {} : { dimensions }),
  });
  const { answer, bill, headers } = await withMemberNames(rename, () =>
    callWithoutStream(context, request, formats.embeddings),
  );
  const content = await convertOrReject(bill, () =>
    toSdkEmbeddings(answer, { values: values.length, warnings }),
  );
  const replay =
    content.length <= maxReplayBytes
      ? answerForReplay(call, {
          body: parseJsonOrUndefined(content.toString('utf8')),
          headers: { ...headers, ...creditsHeader(Number(bill.price)) },
        })
      : undefined;
  const credits = await bill.settle('completed', replay);
  return {
    status: 200,
    content,
    mediaType: 'application/json; charset=utf-8',
    headers: { ...headers, ...creditsHeader(credits) },
  };
}

// Longer answers are not kept for a replay.
const maxReplayBytes = 64 * 1024;

async function rerank(context: AiContext, call: RerankingCall) {
  const { query, documents, topN, providerOptions } = call.body;
  const { model, optionsForProvider, warnings, rename } = readTarget(context.catalog, call, providerOptions);
  const request = withPassthroughBody(call, {
    ...optionsForProvider,
    model,
    query,
    documents: documentsOf(documents),
    ...(topN === undefined ? {} : { top_n: topN }),
  });
  const { answer, bill, headers } = await withMemberNames(rename, () =>
    callWithoutStream(context, request, formats.rerank),
  );
  const ranking = await convertOrReject(bill, () => toRanking(answer));
  const rendered = await settleAndRender(call, bill, (credits) => ({
    body: { ranking, warnings },
    headers: { ...headers, ...creditsHeader(credits) },
  }));
  return { status: 200 as const, ...rendered };
}

/** The documents as strings. Objects are sent as JSON, because most rerank servers accept only strings. */
function documentsOf({ values }: RerankingBody['documents']): string[] {
  return values.map((value) => (typeof value === 'string' ? value : JSON.stringify(value)));
}

interface Target {
  model: string;
  /** The options for the provider of the model. */
  optionsForProvider: Readonly<Record<string, unknown>>;
  warnings: Warning[];
  rename: RenameMember;
}

/** Throws a 404 for an unknown model, and a 400 for an option that would replace a member of the request. */
function readTarget(
  catalog: Catalog,
  { identity, headers }: Pick<EmbeddingCall, 'identity' | 'headers'>,
  providerOptions: SdkOptions | undefined,
): Target {
  const model = headers['ai-model-id'];
  const provider = catalog.chain(viewerOf(identity), model)[0]?.provider ?? '';
  const { optionsForProvider, warnings } = optionsFor(provider, providerOptions);
  const ownPath = (name: string) => `providerOptions.${provider}.${name}`;
  const reservedName = Object.keys(optionsForProvider).find((name) => fixedMembers.has(name));
  if (reservedName !== undefined)
    throw new Problem(
      'bad_request',
      'invalid_request',
      `The option ${ownPath(reservedName)} is refused: the gateway sends this member itself.`,
      { param: ownPath(reservedName) },
    );
  const rename: RenameMember = (member) => {
    if (Object.hasOwn(optionsForProvider, member)) return ownPath(member);
    return member === 'input' ? 'values' : undefined;
  };
  return { model, optionsForProvider, warnings, rename };
}

const fixedMembers = new Set([
  'model',
  'input',
  'encoding_format',
  'dimensions',
  'query',
  'documents',
  'top_n',
  'stream',
]);

/** Settles the bill without a charge when the answer cannot be converted. */
async function convertOrReject<T>(bill: Bill, convert: () => T | Promise<T>): Promise<T> {
  try {
    return await convert();
  } catch (error) {
    await bill.settle('rejected');
    throw error;
  }
}

async function callWithoutStream(
  context: AiContext,
  request: PassthroughRequest,
  format: formats.PassthroughFormat,
): Promise<Omit<PassthroughOutcome, 'result'> & { answer: PassthroughAnswer }> {
  const { result, bill, headers } = await callPassthrough(context, request, format);
  if (result.kind === 'stream') throw new Error(`The format ${format.name} was streamed.`);
  return { answer: result.answer, bill, headers };
}
