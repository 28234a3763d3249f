"""The explorer's engine computes what PyTorch computes: every tensor on the way, in the browser, in float32."""

import base64
import json

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange

from tools.explorer_page import text
from vit_course import VisionTransformer
from vit_course.attention import attention_weights
from vit_course.data import load_sample
from vit_course.embedding import patchify
from vit_course.weights import load_trained, packed_with_checksum

MODEL, ABOUT = load_trained("fashion_mnist")
SAMPLE = load_sample()
IMAGES = SAMPLE.normalized().images
ENCODED = """values => {
  const bytes = new Uint8Array(Float32Array.from(values).buffer);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}"""
COMPUTE = f"""
images => JSON.stringify(images.map((pixels) => {{
  const encoded = {ENCODED};
  const shape = [engine.sizes.in_channels, ...engine.sizes.image_size];
  const record = vit.forward(engine, vit.tensor(shape, Float32Array.from(pixels)), {{}});
  return Object.entries(record).map(([name, {{ shape, data }}]) => [name, shape, encoded(data)]);
}}))
"""


@torch.no_grad()
def expected(model, image):
    """Return the same tensors for one normalized image (1, c, h, w), by the course's modules and PyTorch."""
    embedding, tokens = model.embedding, model.embedding(image)
    patch_tokens = embedding.patch_embedding(image)
    record = {
        "image": image,
        "patches": patchify(image, embedding.patch_embedding.patch_size),
        "patch_tokens": patch_tokens,
        "positions": embedding.pos_embedding,
        "tokens": torch.cat([embedding.class_token, patch_tokens], dim=1),
        "embedding": tokens,
    }
    for number, block in enumerate(model.encoder.layers):
        attention, normed = block.self_attention, block.ln_1(tokens)
        query, key, value = rearrange(
            attention.qkv(normed), "b s (t heads e) -> t b heads s e", t=3, heads=attention.num_heads
        )
        outputs = F.scaled_dot_product_attention(query, key, value)
        between = tokens + attention(normed)
        hidden = block.mlp.linear_1(block.ln_2(between))
        of_layer = {
            "ln_1": normed,
            "queries": query,
            "keys": key,
            "values": value,
            "scores": query @ key.mT,
            "weights": attention_weights(query, key),
            "head_outputs": outputs,
            "merged": rearrange(outputs, "b heads s e -> b s (heads e)"),
            "attention_output": attention(normed),
            "after_attention": between,
            "ln_2": block.ln_2(between),
            "mlp_hidden": hidden,
            "mlp_activated": F.gelu(hidden),
            "mlp_output": block.mlp(block.ln_2(between)),
            "output": block(tokens),
        }
        record |= {f"layers.{number}.{name}": tensor for name, tensor in of_layer.items()}
        tokens = block(tokens)
    read = model.encoder.ln(tokens)
    record |= {"ln": read, "pooled": read[:, :1] if model.pool == "token" else read[:, 1:].mean(dim=1, keepdim=True)}
    logits = model(image)
    of_image = {name: tensor[0] for name, tensor in record.items()}
    return of_image | {"logits": logits, "probabilities": logits.softmax(dim=-1)}


def decoded(text):
    """Return the float32 numbers that ``ENCODED`` has made a text of."""
    return torch.tensor(np.frombuffer(base64.b64decode(text), np.float32))


def assert_pytorch_s(page, model, images, normalized):
    """Compare every tensor that the page computes for these images with the same model's in PyTorch."""
    records = json.loads(page.evaluate(COMPUTE, images.flatten(1).tolist()))
    for record, image in zip(records, normalized, strict=True):
        found = {name: decoded(data).reshape(shape) for name, shape, data in record}
        wanted = expected(model, image[None])
        assert found.keys() == wanted.keys()
        for name, tensor in wanted.items():
            close = dict(rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(found[name], tensor, **close, msg=lambda why, name=name: f"{name}: {why}")


def random_checkpoint(sizes, *, mean, std):
    """Return a model of these sizes, every parameter random, and its checkpoint as a file holds it."""
    torch.manual_seed(0)
    model = VisionTransformer(**sizes | dict(image_size=tuple(sizes["image_size"]))).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    names = [f"class {number}" for number in range(sizes["num_classes"])]
    about = dict(model=sizes, class_names=names, mean=mean, std=std, dataset="none")
    return model, packed_with_checksum(model.state_dict(), about)


def test_a_checkpoint_of_another_shape_with_three_channels_and_the_mean_of_the_tokens(explorer_page, new_page):
    """Rectangular images too; the tensors of the shipped model are compared in test_firefox.py."""
    page = new_page()
    page.goto(explorer_page)
    sizes = dict(image_size=[8, 12], patch_size=4, in_channels=3, num_layers=2, num_heads=3, hidden_dim=12, mlp_dim=20)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.6, 0.7]
    model, packed = random_checkpoint(sizes | dict(num_classes=5, pool="mean"), mean=mean, std=std)
    page.evaluate("saved => { window.engine = vit.readModel(vit.decoded(saved).buffer); }", text(packed))
    images = torch.randint(256, (2, 3, 8, 12)) / 255
    normalized = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert_pytorch_s(page, model, images, normalized)
