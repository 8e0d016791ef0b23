import { describe, expect, it } from 'vitest';
import { toTranscript } from '../../../../src/gateway/ai/media/openai-transcript.ts';

const transcription = (text: string) => ({ text, segments: [], language: 'en', duration_seconds: 61.5 });

describe('toTranscript', () => {
  it.each([
    ['srt', '1\n00:00:00,000 --> 00:01:01,500\nOne.\nTwo -> three.\n'],
    ['vtt', 'WEBVTT\n\n00:00:00.000 --> 00:01:01.500\nOne.\nTwo -> three.\n'],
  ] as const)('keeps paragraphs and arrows within one cue of %s', (format, text) => {
    expect(toTranscript(transcription(' One.\r\n\r\nTwo --> three.\n'), format)).toMatchObject({ text });
  });

  it.each(['srt', 'vtt'] as const)('shows a %s of unknown duration until the end', (format) => {
    const transcript = toTranscript({ ...transcription('One.'), duration_seconds: null }, format);
    expect(transcript).toMatchObject({ text: expect.stringMatching(/00:00:00.000 --> 24:00:00.000\nOne\./) });
  });
});
