// opencode merges ~/.config/opencode/opencode.json with the files of a project. The file may have comments
// (https://opencode.ai/docs/config, https://opencode.ai/docs/providers).
import { join } from 'node:path';
import type { Tool } from './tool.ts';

export const opencode: Tool = {
  id: 'opencode',
  title: 'opencode',
  format: 'chat-completions',
  preferredModel: /claude|\bgpt-/,
  edits: ({ url, token, model, home, env }) => [
    {
      kind: 'json',
      path: join(env['XDG_CONFIG_HOME'] || join(home, '.config'), 'opencode', 'opencode.json'),
      set: [
        {
          at: ['provider', 'townhall'],
          value: {
            npm: '@ai-sdk/openai-compatible',
            name: 'Townhall',
            options: { baseURL: `${url}/v1`, apiKey: token },
            models: { [model]: { name: model } },
          },
        },
        { at: ['model'], value: `townhall/${model}` },
      ],
    },
  ],
  start: () => ['opencode'],
};
