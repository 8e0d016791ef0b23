// aider reads ~/.aider.conf.yml, then the same file in the repository and in the folder
// (https://aider.chat/docs/config/aider_conf.html, https://aider.chat/docs/llms/openai-compat.html).
import { join } from 'node:path';
import type { Tool } from './tool.ts';

export const aider: Tool = {
  id: 'aider',
  title: 'aider',
  format: 'chat-completions',
  preferredModel: /claude|\bgpt-/,
  // aider uses the last of several entries with the same name, so the block goes to the end of the file.
  edits: ({ url, token, model, home }) => [
    {
      kind: 'block',
      path: join(home, '.aider.conf.yml'),
      lines: [
        `openai-api-base: ${JSON.stringify(`${url}/v1`)}`,
        `openai-api-key: ${JSON.stringify(token)}`,
        // The first part tells aider which client to use; the rest is the gateway's model.
        `model: ${JSON.stringify(`openai/${model}`)}`,
      ],
    },
  ],
  start: () => ['aider'],
};
