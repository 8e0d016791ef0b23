// Qwen Code reads models and the variables of their keys from ~/.qwen/settings.json. The file may have
// comments (https://qwenlm.github.io/qwen-code-docs/en/users/configuration/model-providers/).
import { join } from 'node:path';
import type { Tool } from './tool.ts';

const keyVariable = 'TOWNHALL_API_KEY';

export const qwen: Tool = {
  id: 'qwen',
  title: 'Qwen Code',
  format: 'chat-completions',
  preferredModel: /qwen/,
  edits: ({ url, token, model, home }) => [
    {
      kind: 'json',
      path: join(home, '.qwen', 'settings.json'),
      prepend: [
        {
          at: ['modelProviders', 'openai'],
          item: { id: model, name: `${model} (Townhall)`, baseUrl: `${url}/v1`, envKey: keyVariable },
        },
      ],
      set: [
        { at: ['env', keyVariable], value: token },
        { at: ['security', 'auth', 'selectedType'], value: 'openai' },
        { at: ['model', 'name'], value: model },
      ],
    },
  ],
  start: () => ['qwen'],
};
