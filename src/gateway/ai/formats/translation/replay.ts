// Replay metadata: values that a provider expects back with its reasoning and its tool calls,
// such as Anthropic's signatures, OpenAI's encrypted reasoning and Gemini's thought signatures.
// Clients of the messages and responses formats return one opaque string with each block of
// reasoning, so the gateway packs these values into that string and stores nothing itself.
import { isRecord, parseJsonOrUndefined } from '../../../../kernel/json-value.ts';
import { Problem } from '../../../../kernel/problem.ts';
import type { ProviderMetadata, ProviderOptions } from '../../hub/language-model.ts';
import { type Member, topLevelMembers } from '../../upstream/json-members.ts';

export interface Replay {
  /** The tool call that the values belong to; absent when they belong to the reasoning that carries them. */
  toolCallId?: string | undefined;
  options: ProviderOptions;
}

// An allowlist for packing and unpacking, because the packed string comes back from the caller.
const reasoningMembers: Readonly<Record<string, readonly string[]>> = {
  anthropic: ['signature', 'redactedData'],
  google: ['thoughtSignature'],
  openai: ['itemId', 'reasoningEncryptedContent'],
  amazonBedrock: ['signature', 'redactedData', 'redactedContent'],
};

/** Names that these providers also have in answers; requests accept either name. */
const aliases: Readonly<Record<string, string>> = { google: 'googleVertex' };

const prefix = 'townhall.1.';

/** The values to return with a block of reasoning; undefined when the provider expects none. */
export function reasoningReplay(metadata: ProviderMetadata | undefined): ProviderOptions | undefined {
  const options: ProviderOptions = {};
  for (const [provider, names] of Object.entries(reasoningMembers)) {
    const members = pickTexts(metadata?.[provider] ?? metadata?.[aliases[provider] ?? ''], names);
    if (members !== undefined) options[provider] = members;
  }
  return Object.keys(options).length === 0 ? undefined : options;
}

/**
 * The values to return with a tool call. Servers of other kinds forward Gemini's
 * signature under their own names.
 */
export function toolCallReplay(metadata: ProviderMetadata | undefined): ProviderOptions | undefined {
  for (const members of Object.values(metadata ?? {})) {
    const google = pickTexts(members, ['thoughtSignature']);
    if (google !== undefined) return { google };
  }
  return undefined;
}

/** Later values replace earlier ones of the same name. */
export function mergeReplay(
  earlier: ProviderOptions | undefined,
  later: ProviderOptions | undefined,
): ProviderOptions | undefined {
  if (earlier === undefined || later === undefined) return later ?? earlier;
  const merged = { ...earlier };
  for (const [provider, members] of Object.entries(later))
    merged[provider] = { ...merged[provider], ...members };
  return merged;
}

export function encodeReplay({ toolCallId, options }: Replay): string {
  const content = { ...(toolCallId === undefined ? {} : { for: toolCallId }), options };
  return prefix + Buffer.from(JSON.stringify(content)).toString('base64url');
}

/** Whether the value is a string that the gateway packed. */
export function isReplay(text: unknown): text is string {
  return typeof text === 'string' && text.startsWith(prefix);
}

// Unpacking takes microseconds for each packed string, and blocks the event loop for all of them together.
const maxPackedTexts = 2_000;
const maxPackedLength = 4 * 2 ** 20;

/** Throws a 413, which names the member, for more packed strings than any real conversation has. */
export function checkReplays(body: object): void {
  let count = 0;
  let length = 0;
  for (const [member, content] of Object.entries(body) as [string, unknown][]) {
    const pendingValues = [content];
    while (pendingValues.length > 0) {
      const value = pendingValues.pop();
      if (isReplay(value)) {
        count += 1;
        length += value.length;
        if (count > maxPackedTexts || length > maxPackedLength) throw tooManyReplays(member);
      } else if (Array.isArray(value)) for (const item of value as unknown[]) pendingValues.push(item);
      else if (typeof value === 'object' && value !== null)
        for (const name in value) pendingValues.push((value as Record<string, unknown>)[name]);
    }
  }
}

function tooManyReplays(param: string): Problem {
  const message =
    `A request may contain at most ${maxPackedTexts} signatures and encrypted texts of the gateway, with ` +
    `at most 4 MiB together; ${param} exceeds this limit. Leave out the reasoning of older turns.`;
  return new Problem('too_large', 'request_too_large', message, { param });
}

/**
 * Undefined for a string that the gateway did not pack. The content is scanned and never parsed as a whole,
 * because the limits on the values of a request do not count values inside a string.
 */
export function decodeReplay(text: string): Replay | undefined {
  if (!isReplay(text)) return undefined;
  const bytes = Buffer.from(text.slice(prefix.length), 'base64url');
  const content = topLevelMembers(bytes)?.members ?? [];
  const providers = membersOf(bytes, content, 'options');
  if (providers === undefined) return undefined;
  const options: ProviderOptions = {};
  for (const [provider, names] of Object.entries(reasoningMembers)) {
    const members = membersOf(bytes, providers, provider) ?? [];
    const texts = pickTexts(
      Object.fromEntries(names.map((name) => [name, textOf(bytes, members, name)])),
      names,
    );
    if (texts !== undefined) options[provider] = texts;
  }
  const toolCallId = textOf(bytes, content, 'for');
  return { ...(toolCallId === undefined ? {} : { toolCallId }), options };
}

const quote = 0x22;

/** The members of the object with this name; undefined if there is none. */
function membersOf(bytes: Buffer, members: readonly Member[], name: string): Member[] | undefined {
  const object = members.find((member) => member.name === name);
  return object && topLevelMembers(bytes, object.start, object.end)?.members;
}

function textOf(bytes: Buffer, members: readonly Member[], name: string): string | undefined {
  const member = members.find((candidate) => candidate.name === name);
  if (member === undefined || bytes[member.start] !== quote) return undefined;
  const text = parseJsonOrUndefined(bytes.toString('utf8', member.start, member.end));
  return typeof text === 'string' ? text : undefined;
}

function pickTexts(members: unknown, names: readonly string[]): Record<string, string> | undefined {
  if (!isRecord(members)) return undefined;
  const texts: Record<string, string> = {};
  for (const name of names) {
    const value = members[name];
    if (typeof value === 'string' && value !== '') texts[name] = value;
  }
  return Object.keys(texts).length === 0 ? undefined : texts;
}
