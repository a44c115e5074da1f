"""Weights in the layout of the published package, made here, and a forward pass written here."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from harness.errors import raises
from harness.t5_models import DIMENSION, REPEAT, WIDTH, checkpoint_folder, published_weights, t5_folder
from vecveil.auditing.attacks.attack import TextVectors
from vecveil.auditing.attacks.reconstruction.t5 import PublishedCheckpoint, logits_of, read_published, write_ids
from vecveil.auditing.attacks.reconstruction.vec2text import Preset, Vec2TextAttack
from vecveil.privacy.training import TrainingRecipe

TEXTS = ["the cat sat on the mat", "a dog ran in the park", "the park is on a hill"]


@pytest.fixture(scope="module")
def t5(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5")
    return folder, t5_folder(folder, TEXTS)


def _project(weights, name, x):
    hidden = torch.nn.functional.gelu(x @ weights[f"{name}.0.weight"].T + weights[f"{name}.0.bias"])
    out = hidden @ weights[f"{name}.3.weight"].T + weights[f"{name}.3.bias"]
    return out.reshape(len(x), REPEAT, WIDTH)


def _reference(weights, t5, batch):
    """Return the logits as the published modules compute them (models/inversion.py, corrector_encoder.py)."""
    x = batch["target"]
    if "embedding_transform.0.weight" in weights:
        read = _project(weights, "embedding_transform", x)
        mask = torch.ones(read.shape[:2])
    else:
        y, ids = batch["guess"], batch["guess_ids"]
        table = weights["encoder_decoder.shared.weight"]
        sep = table[torch.ones(len(x), 1, dtype=torch.long)]
        parts = [
            sep,
            _project(weights, "embedding_transform_1", x),
            sep,
            _project(weights, "embedding_transform_3", y),
            sep,
            _project(weights, "embedding_transform_2", x - y),
            sep,
            table[ids],
        ]
        read = torch.cat(parts, dim=1)
        norm = weights["layernorm.weight"], weights["layernorm.bias"]
        read = torch.nn.functional.layer_norm(read, (WIDTH,), *norm)
        mask = torch.cat([torch.ones(len(x), 4 + 3 * REPEAT), (ids != 0).float()], dim=1)
    with torch.no_grad():
        return t5(inputs_embeds=read, attention_mask=mask, labels=batch["ids"]).logits


def _batch():
    generator = torch.Generator().manual_seed(9)
    return {
        "target": torch.randn(4, DIMENSION, generator=generator),
        "guess": torch.randn(4, DIMENSION, generator=generator),
        "guess_ids": torch.tensor([[0, 5, 6, 1, 0, 0], [0, 9, 8, 7, 6, 1]] * 2),
        "ids": torch.tensor([[5, 6, 7, 1]] * 4),
        "lengths": torch.tensor([4] * 4),
    }


@pytest.mark.parametrize("layout", ["safetensors", "bin", "shards"])
def test_published_weights_give_the_published_logits(tmp_path, t5, layout):
    made = {kind: published_weights(t5[1], kind, i) for i, kind in enumerate(("hypothesiser", "corrector"))}
    folders = {kind: checkpoint_folder(tmp_path, t5, kind, weights, layout) for kind, (weights, _) in made.items()}
    tokeniser, found = read_published(PublishedCheckpoint(**folders))
    assert tokeniser.end == 1
    for kind, (module, shape) in found.items():
        assert (shape.kind, shape.inputs, shape.repeat) == (kind, DIMENSION, REPEAT)
        weights, reference = made[kind]
        with torch.no_grad():
            ours = logits_of(module, _batch())
        theirs = _reference(weights, reference, _batch())
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        other = _reference(*made[kind], {**_batch(), "target": -_batch()["target"]})
        assert not torch.allclose(ours, other, atol=1e-3)  # control: the vector matters
        write_ids(module, {k: v.numpy() for k, v in _batch().items()}, beam=2, max_tokens=3)


def test_older_correctors_with_one_projection_and_one_table(tmp_path, t5):
    weights, reference = published_weights(t5[1], "corrector", 3)
    for i in (2, 3):
        for part in ("0.weight", "0.bias", "3.weight", "3.bias"):
            weights[f"embedding_transform_{i}.{part}"] = weights[f"embedding_transform_1.{part}"]
    old = {
        key.replace("embedding_transform_1.", "embedding_transform."): w
        for key, w in weights.items()
        if not key.startswith(("embedding_transform_2", "embedding_transform_3"))
        and key not in ("encoder_decoder.shared.weight", "encoder_decoder.lm_head.weight")
    }
    first = checkpoint_folder(tmp_path, t5, "hypothesiser", published_weights(t5[1], "hypothesiser", 2)[0])
    second = checkpoint_folder(tmp_path, t5, "corrector", old)
    _, found = read_published(PublishedCheckpoint(first, second, t5=t5[0]))
    with torch.no_grad():
        ours = logits_of(found["corrector"][0], _batch())
    torch.testing.assert_close(ours, _reference(weights, reference, _batch()), rtol=1e-4, atol=1e-5)


def _encode(texts):
    rows = [np.random.default_rng(list(text.encode())).standard_normal(DIMENSION) for text in texts]
    return np.array(rows, dtype=np.float32)


def _attack(start, **options):
    recipe = TrainingRecipe(epochs=1, batch=8, learning_rate=1e-3, max_tokens=8, device="cpu")
    preset = Preset(recipe, rounds=1, beam=2)
    return Vec2TextAttack(_encode, preset, start_from=start, **options)


def _data(dimension=DIMENSION):
    texts = [f"{text} {i}" for i in range(6) for text in TEXTS]
    X = _encode(texts)[:, :dimension]
    return TextVectors(X[:12], texts[:12]), TextVectors(X[12:], texts[12:])


def test_the_attack_takes_published_weights_as_they_are_or_trains_on(tmp_path, t5):
    folders = [
        checkpoint_folder(tmp_path, t5, kind, published_weights(t5[1], kind, i)[0])
        for i, kind in enumerate(("hypothesiser", "corrector"))
    ]
    start = PublishedCheckpoint(*folders)
    kept = tmp_path / "as-it-is"
    result = _attack(start, fine_tune=False).run(*_data(), checkpoint=kept, show_progress=False)
    assert "hypothesiser_epoch" not in result.details
    assert result.details["rounds"] >= 1
    again = _attack(start, fine_tune=False).run(*_data(), checkpoint=kept, show_progress=False)
    assert again.examples == result.examples
    assert not list(kept.glob("*.bin"))
    tuned = _attack(start).run(*_data(), show_progress=False)
    assert (tuned.details["hypothesiser_epoch"], tuned.details["corrector_epoch"]) == (1, 1)
    with raises("E-DATA-FILE", "start_from"):
        _attack(start, rounds=0).run(*_data(17), show_progress=False)


def _broken(folder, how):
    if how == "no weights":
        (folder / "model.safetensors").unlink()
    elif how == "no configuration":
        (folder / "config.json").unlink()
    elif how == "cut off":
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:1000])
    elif how == "other names":
        save_file({"weight": torch.zeros(2)}, folder / "model.safetensors")
    elif how == "other sizes":
        save_file(
            {
                "encoder_decoder.shared.weight": torch.zeros(304, WIDTH),
                "embedding_transform.0.weight": torch.zeros(2, 2),
                "embedding_transform.3.weight": torch.zeros(REPEAT * WIDTH, 2),
            },
            folder / "model.safetensors",
        )
    else:
        (folder / "model.safetensors").unlink()
        torch.save({"encoder_decoder": _Evil()}, folder / "pytorch_model.bin")


class _Evil:
    def __reduce__(self):
        return print, ("run",)


@pytest.mark.parametrize(
    "how", ["no weights", "no configuration", "cut off", "other names", "other sizes", "code in a pickle"]
)
def test_what_is_no_checkpoint_is_refused(tmp_path, t5, how, capsys):
    folder = checkpoint_folder(tmp_path, t5, "hypothesiser", published_weights(t5[1], "hypothesiser", 2)[0])
    _broken(folder, how)
    with raises("E-CHECKPOINT", "hypothesiser"):
        read_published(PublishedCheckpoint(folder))
    assert "run" not in capsys.readouterr().out
