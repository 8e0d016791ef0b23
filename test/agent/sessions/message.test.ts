// The message that grows with the model's stream.
import { describe, expect, test } from 'vitest';
import { foldMessage, type MessageFold } from '../../../src/agent/sessions/model-loop/message.ts';

const textsOf = (message: MessageFold) =>
  message.parts().flatMap((part) => (part.type === 'text' ? [part.text] : []));

describe('replaceText', () => {
  test('replaces all text parts of the last step', () => {
    const message = foldMessage();
    message.startStep();
    message.addText('text', 'a', 'One. ');
    message.addText('text', 'b', 'Two.');
    message.replaceText('Replaced.');
    expect(textsOf(message).join('')).toBe('Replaced.');
  });

  test('keeps the texts of earlier steps', () => {
    const message = foldMessage();
    message.startStep();
    message.addText('text', 'a', 'Let me ');
    // The stream breaks, and the model continues its text.
    message.retryStep();
    message.addText('text', 'b', 'look.');
    message.startTool({ toolCallId: 'call', toolName: 'files_list', input: {} });
    message.startStep();
    message.addText('text', 'c', 'Done.');
    message.replaceText('Replaced.');
    expect(textsOf(message)).toEqual(['Let me ', 'look.', 'Replaced.']);
  });

  test('adds a text to a last step without one', () => {
    const message = foldMessage();
    message.startStep();
    message.addText('text', 'a', 'Let me look.');
    message.startStep();
    message.replaceText('Replaced.');
    expect(textsOf(message)).toEqual(['Let me look.', 'Replaced.']);
    expect(message.text()).toBe('Replaced.');
  });
});
