// The handler of OpenAI's older completions format. Providers that support it get the caller's bytes; for
// all others the call is translated.
import type { Completion, CompletionRequest } from '../../../contract/gateway/types.gen.ts';
import type { AiContext, AiHandlers } from '../calls/context.ts';
import { serializeChunks, serializeCompletion } from '../formats/completions/answer.ts';
import { droppedMemberWarnings, refuseEcho, toModelCall } from '../formats/completions/request.ts';
import * as formats from '../formats/passthrough/formats.ts';
import { checkDefinitions } from '../formats/tool-definitions.ts';
import { checkLocalInput } from '../formats/translation/input-checks.ts';
import { requirePrice } from '../metering/bound.ts';
import { refuseUnsafeMembers } from '../upstream/request-guard.ts';
import { refusePricedTools } from '../upstream/tool-guard.ts';
import { answerInChunks, type ChunkedFormat } from './chunked-format.ts';

const completions: ChunkedFormat<CompletionRequest, Completion, Completion> = {
  passthrough: formats.completions,
  action: 'completions',
  idPrefix: 'cmpl',
  checkModel(model, body) {
    requirePrice(model, ['input', 'output']);
    checkLocalInput(model, body);
  },
  toContent({ body, rawBody, signal }, { providerEntry, rates }) {
    const { name, limitMembers } = formats.completions;
    refuseUnsafeMembers(body, providerEntry, { limits: limitMembers });
    if (rates !== null) refusePricedTools(body);
    return providerEntry.formats.includes(name)
      ? { kind: 'bytes', rawBody, warnings: [] }
      : { kind: 'hub', hub: toModelCall(body, { signal }) };
  },
  droppedMemberWarnings,
  serializeAnswer: serializeCompletion,
  serializeChunks,
};

export function completionHandlers(context: AiContext): Pick<AiHandlers, 'ai.createCompletion'> {
  return {
    async 'ai.createCompletion'(call) {
      checkDefinitions(call.body);
      refuseEcho(call.body);
      return answerInChunks(context, completions, call);
    },
  };
}
