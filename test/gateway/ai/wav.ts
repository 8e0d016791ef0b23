// WAV files of silence, optionally with headers that declare another length.

export interface WavOptions {
  samplesPerSecond?: number;
  bytesPerSample?: number;
  /** What the header declares instead of the true values. */
  declared?: { bytesPerSecond?: number; contentBytes?: number };
}

/** A mono file with this number of bytes after its header; 16 bit at 8 kHz by default. */
export function wavFile(contentBytes: number, options: WavOptions = {}): Buffer<ArrayBuffer> {
  const { samplesPerSecond = 8_000, bytesPerSample = 2, declared = {} } = options;
  const header = Buffer.alloc(44);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(36 + contentBytes, 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  // PCM with one channel.
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(samplesPerSecond, 24);
  header.writeUInt32LE(declared.bytesPerSecond ?? samplesPerSecond * bytesPerSample, 28);
  header.writeUInt16LE(bytesPerSample, 32);
  header.writeUInt16LE(8 * bytesPerSample, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(declared.contentBytes ?? contentBytes, 40);
  return Buffer.concat([header, Buffer.alloc(contentBytes)]);
}
