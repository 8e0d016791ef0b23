// Signature Version 4, by the vectors of AWS's published test suite and the examples of its documentation.
import { createHash, createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { signRequest } from '../../../src/kernel/secrets/aws-signature.ts';

const keys = {
  accessKeyId: 'AKIDEXAMPLE',
  secretAccessKey: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
};
const scope = { region: 'us-east-1', service: 'service', now: new Date('2015-08-30T12:36:00Z') };
const address = 'https://example.amazonaws.com/';
const form = 'application/x-www-form-urlencoded';
const signatureOf = (headers: Record<string, string>) => headers['authorization']?.split('Signature=')[1];

describe('signRequest', () => {
  test.each([
    [
      'get-vanilla',
      { method: 'GET', url: address },
      '5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31',
    ],
    [
      'post-vanilla',
      { method: 'POST', url: address },
      '5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b',
    ],
    [
      'get-vanilla-query-order-key-case',
      { method: 'GET', url: `${address}?Param2=value2&Param1=value1` },
      'b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500',
    ],
    [
      'post-x-www-form-urlencoded',
      { method: 'POST', url: address, headers: { 'content-type': form }, body: 'Param1=value1' },
      'ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a',
    ],
  ])('matches the vector %s', (_name, request, signature) => {
    const headers = signRequest({ body: undefined, ...request }, keys, scope);
    expect(signatureOf(headers)).toBe(signature);
    expect(headers).toMatchObject({
      'x-amz-date': '20150830T123600Z',
      authorization: expect.stringContaining(
        'AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=',
      ),
    });
  });

  test('orders parameters by their names, not by their pairs', () => {
    // As pairs, `a-b=2` comes before `a=1`, because `-` precedes `=`.
    const signaturesOf = ['a=1&a-b=2&a=0', 'a-b=2&a=1&a=0'].map((query) =>
      signatureOf(signRequest({ method: 'GET', url: `${address}?${query}`, body: undefined }, keys, scope)),
    );
    const canonicalRequest = [
      'GET',
      '/',
      'a=0&a=1&a-b=2',
      'host:example.amazonaws.com',
      'x-amz-date:20150830T123600Z',
      '',
      'host;x-amz-date',
      createHash('sha256').update('').digest('hex'),
    ].join('\n');
    const hmac = (key: string | Buffer, text: string) => createHmac('sha256', key).update(text).digest();
    const signingKey = ['20150830', 'us-east-1', 'service', 'aws4_request'].reduce<string | Buffer>(
      hmac,
      `AWS4${keys.secretAccessKey}`,
    );
    const stringToSign = [
      'AWS4-HMAC-SHA256',
      '20150830T123600Z',
      '20150830/us-east-1/service/aws4_request',
      createHash('sha256').update(canonicalRequest).digest('hex'),
    ].join('\n');
    const signature = hmac(signingKey, stringToSign).toString('hex');
    expect(signaturesOf).toEqual([signature, signature]);
  });

  test("matches the example of AWS's documentation", () => {
    const request = {
      method: 'GET',
      url: 'https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08',
      headers: { 'content-type': `${form}; charset=utf-8` },
      body: undefined,
    };
    const headers = signRequest(request, keys, { ...scope, service: 'iam' });
    expect(signatureOf(headers)).toBe('5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7');
  });

  const emptyDigest = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';
  const fileDigest = '44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072';
  test.each([
    [
      'GET of a range',
      { method: 'GET', path: 'test.txt', headers: { range: 'bytes=0-9' }, digest: emptyDigest },
      'f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41',
    ],
    [
      'PUT of a name that is encoded',
      {
        method: 'PUT',
        path: 'test%24file.text',
        headers: { date: 'Fri, 24 May 2013 00:00:00 GMT', 'x-amz-storage-class': 'REDUCED_REDUNDANCY' },
        digest: fileDigest,
      },
      '98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd',
    ],
    [
      'GET of a subresource',
      { method: 'GET', path: '?lifecycle', headers: {}, digest: emptyDigest },
      'fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543',
    ],
    [
      'GET of a list',
      { method: 'GET', path: '?max-keys=2&prefix=J', headers: {}, digest: emptyDigest },
      '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7',
    ],
  ])("matches AWS's example for S3: %s", (_name, { method, path, headers, digest }, signature) => {
    const signed = signRequest(
      {
        method,
        url: `https://examplebucket.s3.amazonaws.com/${path}`,
        headers: { ...headers, 'x-amz-content-sha256': digest },
        body: undefined,
        bodyDigest: digest,
      },
      { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY' },
      { region: 'us-east-1', service: 's3', now: new Date('2013-05-24T00:00:00Z') },
    );
    expect(signatureOf(signed)).toBe(signature);
  });

  test('signs the token of temporary credentials', () => {
    const headers = signRequest(
      { method: 'POST', url: address, body: undefined },
      { ...keys, sessionToken: 'AQoDYXdzEPT//////////wEXAMPLE' },
      scope,
    );
    expect(headers['x-amz-security-token']).toBe('AQoDYXdzEPT//////////wEXAMPLE');
    expect(headers['authorization']).toContain('SignedHeaders=host;x-amz-date;x-amz-security-token,');
  });
});
