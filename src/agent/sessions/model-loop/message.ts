// The assistant's message as it grows: a pure fold, over the stream of a model or, after a crash, over the events of the
// run.
import type { UiMessagePart } from '../../../contract/agent/types.gen.ts';
import type { SessionEvent } from '../event-log/events.ts';

type TextPart = Extract<UiMessagePart, { type: 'text' | 'reasoning' }>;
type ToolPart = Extract<UiMessagePart, { type: 'dynamic-tool' }>;

export interface MessageFold {
  /** The parts so far, in the order in which they began. */
  parts(): UiMessagePart[];
  /** The text of the last step. */
  text(): string;
  startStep(): void;
  /** Removes the last step, of which nothing has come. */
  dropStep(): void;
  /** Text or reasoning that belongs to the block of that id; a new id begins a new part. */
  addText(type: 'text' | 'reasoning', block: string, delta: string): void;
  addSource(source: { id: string; url: string; title?: string | undefined }): void;
  startTool(toolCallId: string, toolName: string, input: unknown): void;
  endTool(toolCallId: string, result: { output: unknown } | { errorText: string }): void;
  /** Replaces the text of the last step. */
  replaceText(text: string): void;
  /** Turns tool calls without a result into failed ones. */
  close(errorText: string): void;
}

export function foldMessage(): MessageFold {
  const parts: UiMessagePart[] = [];
  let blocks = new Map<string, TextPart>();
  let step: string[] = [];

  // The last one, because a provider may reuse an id in a later step.
  const openTool = (toolCallId: string) =>
    parts.findLast(
      (part): part is ToolPart =>
        part.type === 'dynamic-tool' && part.toolCallId === toolCallId && part.state === 'input-available',
    );

  return {
    parts: () => parts,
    text: () => step.join(''),
    startStep() {
      blocks = new Map();
      step = [];
      parts.push({ type: 'step-start' });
    },
    dropStep() {
      if (parts.at(-1)?.type === 'step-start') parts.pop();
    },
    addText(type, block, delta) {
      if (type === 'text') step.push(delta);
      const key = `${type}:${block}`;
      const existing = blocks.get(key);
      const part: TextPart = existing ?? { type, text: '', state: 'done' };
      part.text += delta;
      if (existing) return;
      blocks.set(key, part);
      parts.push(part);
    },
    addSource({ id, url, title }) {
      parts.push({ type: 'source-url', sourceId: id, url, ...(title === undefined ? {} : { title }) });
    },
    startTool(toolCallId, toolName, input) {
      parts.push({
        type: 'dynamic-tool',
        toolName,
        toolCallId,
        state: 'input-available',
        input: input ?? null,
      });
    },
    endTool(toolCallId, result) {
      const part = openTool(toolCallId);
      if (!part) return;
      if ('output' in result)
        Object.assign(part, { state: 'output-available', output: result.output ?? null });
      else Object.assign(part, { state: 'output-error', errorText: result.errorText });
    },
    replaceText(text) {
      const last = parts.findLast((part): part is TextPart => part.type === 'text');
      if (last) last.text = text;
      step = [text];
    },
    close(errorText) {
      for (const part of parts) {
        if (part.type === 'dynamic-tool' && part.state === 'input-available')
          Object.assign(part, { state: 'output-error', errorText });
      }
    },
  };
}

/** The checkpointed text of a part that was open when its process ended. */
export interface OpenText {
  partId: string;
  partType: 'text' | 'reasoning';
  text: string;
}

/** Rebuilds a message from the events of its run and from checkpoints. */
export function foldEvents(
  events: readonly SessionEvent[],
  openTexts: readonly OpenText[] = [],
): UiMessagePart[] {
  const fold = foldMessage();
  const texts = new Map(openTexts.map((part) => [part.partId, part.text]));
  for (const event of events) if (event.type === 'part.ended') texts.set(event.partId, event.text);
  for (const event of events) {
    if (event.type === 'run.step.started') fold.startStep();
    // At the position of its start, with all of its text.
    if (event.type === 'part.started' && texts.has(event.partId))
      fold.addText(event.partType, event.partId, texts.get(event.partId) ?? '');
    if (event.type === 'tool.started') fold.startTool(event.toolCallId, event.toolName, event.input);
    if (event.type === 'tool.output') fold.endTool(event.toolCallId, { output: event.output });
    if (event.type === 'tool.failed') fold.endTool(event.toolCallId, { errorText: event.errorText });
    if (event.type === 'tool.denied') fold.endTool(event.toolCallId, { errorText: event.reason });
  }
  fold.close('The agent ended during this call; whether it took effect is not known.');
  return fold.parts();
}
